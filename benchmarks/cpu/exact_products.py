"""Times all products of a step: our kernels, torch's, and torch's in fixed row counts, on random numbers.

    python benchmarks/cpu/exact_products.py [--dtype float32|bfloat16] [--passes 3] [--rows 1,4,16,32,64,256]

One thread, its own time, so that other programs disturb it little; the sides take turns and the smallest counts. In
bfloat16 our kernels go without AMX, as on processors that have none; ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 keeps it from
torch too.
"""

import argparse
import time

import torch
from native_ops import SHAPES

from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.torch.ops import TorchOps


def main() -> None:
    parser = argparse.ArgumentParser(description="Time products.")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--rows", default="1,4,16,32,64,256")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtype = getattr(torch, options.dtype)
    loaded = library.load()
    assert loaded is not None, "the native kernels were not built or not for this processor"
    loaded.chairlift_features(~library.HAS_AMX)
    shapes = SHAPES["135m"].matrices()
    sides = {}
    for name, ops in (("native", NativeOps(1)), ("torch", TorchOps()), ("torch, exact", TorchOps(exact=True))):
        source = torch.Generator().manual_seed(0)
        sides[name] = [ops.weight(torch.randn(shape, generator=source).to(dtype)) for shape in shapes]
    print("rows   " + "  ".join(f"{name:>12}" for name in sides) + "   ms")
    for rows in map(int, options.rows.split(",")):
        inputs = [torch.randn(rows, width).to(dtype) for _, width in shapes]
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(options.passes):
            for name, weights in sides.items():
                began = time.thread_time()
                for weight, x in zip(weights, inputs, strict=True):
                    weight.linear(x)
                best[name] = min(best[name], time.thread_time() - began)
        print(f"{rows:5}  " + "  ".join(f"{1e3 * spent:12.1f}" for spent in best.values()), flush=True)


if __name__ == "__main__":
    main()
