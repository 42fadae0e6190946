"""Times what a layer's gated delta net does after its products: native kernels beside torch's operations.

    python benchmarks/cpu/delta_nets.py [--heads 16] [--key-heads 16] [--threads 2] [--passes 10] [--only native]

Heads of 128, bf16, blocks of 16. Both sides take turns within each pass, and the smallest time of all passes counts:
the machine may be shared. A decode is in the middle of its tile.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import time

import torch
from torch import Tensor

from chairlift.models.kv_groups import DEFAULT_SIZES
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.runner.mixers.delta_net import DeltaNet
from chairlift.runner.mixers.mixer import State
from chairlift.runner.mixers.tiles import Tiles
from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.ops import Batch, Norm, Ops
from chairlift.runner.torch.ops import TorchOps

CASES = {
    "one decode": [(1000, 1)],
    "32 decodes": [(1000 + 16 * i, 1) for i in range(32)],
    "a prompt of 512": [(0, 512)],
}
MEMORY = (2, 16, 256)  # of keys and of values in a page: Qwen3.5-0.8B's


class Given:
    """A weight whose products are known."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows

    def linear(self, x: Tensor) -> Tensor:
        return self._rows

    logits = rows = linear


def mixer_of(spec: DeltaNetSpec) -> DeltaNet:
    torch.manual_seed(1)
    return DeltaNet(
        spec, torch.randn(spec.num_taps, spec.num_channels) / 2, -torch.rand(spec.num_heads),
        torch.zeros(spec.num_heads), Norm(torch.ones(spec.value_dim), 1e-6),
        Tiles(spec.fixed, spec.num_outputs, torch.float32),
    )  # fmt: skip


def batch_of(chunks: list[tuple[int, int]], spec: DeltaNetSpec) -> tuple[Batch, State]:
    """chunks: where they start, and their tokens."""
    page = 2 * 2 * MEMORY[0] * MEMORY[1] * MEMORY[2]
    rows, state = -(-DEFAULT_SIZES.tile(spec.fixed) // page), -(-DEFAULT_SIZES.state(spec.fixed) // page)
    tables = torch.arange(len(chunks) * 2 * (rows + state)).view(len(chunks), 2, -1)
    starts = torch.tensor([0, *(count for _, count in chunks)]).cumsum(0).int()
    contexts = torch.tensor([start + count for start, count in chunks]).int()
    none = torch.zeros(0, dtype=torch.int64)
    batch = Batch(
        none, none, none, starts, contexts, tables, num_decodes=0, max_context=int(contexts.max()), logit_rows=None,
        num_tile_pages=rows,
    )  # fmt: skip
    keys, values = (torch.randn(tables.numel(), *MEMORY).div_(9).bfloat16() for _ in range(2))
    for memory in (keys, values):  # read as float32, these are finite too
        memory.view(torch.int32).bitwise_and_(0x3FFF3FFF)
    return batch, (keys, values)


def turns(mixer: DeltaNet, chunks: list[tuple[int, int]], kinds: dict[str, Ops], passes: int) -> dict[str, float]:
    """The least seconds of each."""
    spec = mixer.spec
    batch, state = batch_of(chunks, spec)
    count = int(batch.starts[-1])
    inputs = torch.randn(count, spec.num_channels + spec.num_outputs).bfloat16()
    weights = {"inputs": Given(inputs), "rates": Given(torch.randn(count, 2 * spec.num_heads).bfloat16())}
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(passes):
        for kind, ops in kinds.items():
            began = time.perf_counter()
            mixer.mix(ops, inputs, weights, state, batch)
            best[kind] = min(best[kind], time.perf_counter() - began)
    return best


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--heads", type=int, default=16)
    arguments.add_argument("--key-heads", type=int, default=16)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--passes", type=int, default=10)
    arguments.add_argument("--only", choices=["native", "torch"])
    args = arguments.parse_args()
    torch.set_num_threads(args.threads)
    kinds: dict[str, Ops] = {"torch": TorchOps(exact=True), "native": NativeOps(args.threads)}
    if args.only:
        kinds = {args.only: kinds[args.only]}
    spec = DeltaNetSpec(
        num_key_heads=args.key_heads, num_heads=args.heads, key_dim=128, value_dim=128, num_taps=4
    )  # fmt: skip
    mixer = mixer_of(spec)
    print(f"{library.instruction_set()}, {args.threads} threads; milliseconds a layer")
    with torch.inference_mode():
        for name, chunks in CASES.items():
            best = turns(mixer, chunks, kinds, args.passes)
            shown = "  ".join(f"{kind} {1000 * taken:8.3f}" for kind, taken in best.items())
            print(f"{name:16}  {shown}" + ("" if args.only else f"  {best['torch'] / best['native']:6.1f}x"))


if __name__ == "__main__":
    main()
