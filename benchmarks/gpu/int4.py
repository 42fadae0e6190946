"""The product of few rows by a matrix of 4 bits: microseconds beside those of bf16 and of reading it, errors, bits.

    python benchmarks/gpu/int4.py [--rows 1,8,64] [--scales float16] [--symmetric] [--settings] [--compile PART/PARTS]

Matrices of Llama-3-8B, groups of 128, several copies in turn so that no cache holds them, in a captured graph. With
--settings each setting is timed, not the chosen one alone. --compile: only fills Triton's cache, with a share of them.
Prints a table in Markdown.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from chairlift.runner.cuda.products.hopper import FewRows
from chairlift.runner.cuda.products.hopper_int4 import FewRowsInt4
from chairlift.runner.cuda.products.int4 import Int4, int4
from chairlift.runner.cuda.products.one_row import one_row
from chairlift.runner.cuda.products.packed import Packed

DEVICE = torch.device("cuda")
SHAPES = {"QKV": (6144, 4096), "out": (4096, 4096), "gate-up": (28672, 4096), "down": (4096, 14336)}
GROUP, RATE, TURNED = 128, 4.2e12, 400e6  # columns; bytes a second; bytes of all copies
SPLITS = {"QKV": (1, 2, 4, 8), "out": (1, 2, 4, 8), "gate-up": (1, 2), "down": (1, 2, 4, 7, 8)}
STAGES = {8: (3, 4, 6), 16: (3, 4), 32: (2, 3, 4), 64: (2, 3)}
Setting = tuple[int, int]  # splits, stages


def drawn(shape: tuple[int, int], scales: torch.dtype, is_symmetric: bool, is_paired: bool) -> Int4:
    rows, columns = shape
    groups = columns // GROUP
    codes = torch.randint(256, (rows, columns // 2), dtype=torch.uint8, device=DEVICE)
    factors = (torch.rand(rows, groups, device=DEVICE) + 0.5).mul_(0.003).to(scales)
    zeros = None if is_symmetric else torch.randint(17, (rows, groups), device=DEVICE).to(torch.int8)
    table = torch.arange(16.0, device=DEVICE) - (8 if is_symmetric else 0)
    made = int4(Packed(codes, factors, zeros, None, table, None, columns), is_paired)
    assert made is not None
    return made


def bytes_of(matrix: Int4) -> int:
    return sum(each.nbytes for each in (matrix.codes, matrix.scales, matrix.zeros) if each is not None)


def microseconds(calls: list[Callable[[], object]]) -> float:
    """Of one call, the median of eleven rounds."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return sorted(times[1:])[len(times) // 2]


def settings(name: str, rows: int) -> Iterator[Setting]:
    kernel_rows = next(each for each in STAGES if rows <= each)
    yield from itertools.product(SPLITS[name], STAGES[kernel_rows])


def row(*cells: object) -> None:
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="1,2,4,8,16,32,64")
    parser.add_argument("--scales", default="float16", choices=["float16", "bfloat16"])
    parser.add_argument("--symmetric", action="store_true")
    parser.add_argument("--settings", action="store_true")
    parser.add_argument("--compile", default="")
    args = parser.parse_args()
    torch.manual_seed(0)
    counts = [int(each) for each in args.rows.split(",")]
    processors = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    plain, few = FewRows(DEVICE, processors), FewRowsInt4(DEVICE, processors)
    if args.compile:
        part, parts = map(int, args.compile.split("/"))
        todo = [(name, rows, each) for name in SHAPES for rows in counts for each in settings(name, rows)]
        for name, rows, (splits, stages) in todo[part::parts]:
            matrix = drawn((256, SHAPES[name][1]), getattr(torch, args.scales), args.symmetric, name == "gate-up")
            x = torch.randn(rows, matrix.columns, device=DEVICE).bfloat16()
            few.launch(x, matrix, None, x.dtype, "silu" if name == "gate-up" else "", splits, stages)
        torch.cuda.synchronize()
        return
    row("matrix", "rows", "bf16, us", "4 bits, us", "read, us", "times", "error", "bits of bf16", "uncut", "settings")
    print("|" + "---|" * 10)
    for name, shape in SHAPES.items():
        is_paired = name == "gate-up"
        activation = "silu" if is_paired else ""
        matrix = drawn(shape, getattr(torch, args.scales), args.symmetric, is_paired)
        copies = [matrix, *(drawn(shape, matrix.scales.dtype, args.symmetric, is_paired) for _ in range(100))]
        copies = copies[: max(2, int(TURNED / bytes_of(matrix)))]
        wide = torch.empty(shape, dtype=torch.bfloat16, device=DEVICE)
        matrix.widen(wide)
        wides = [wide, wide.clone(), wide.clone()] if wide.nbytes > 1e8 else [wide.clone() for _ in range(8)]
        floor = bytes_of(matrix) / RATE * 1e6
        for rows in counts:
            x = torch.randn(rows, shape[1], device=DEVICE).bfloat16()
            want = x.double() @ wide.double().t()
            got = few.multiply(x, matrix, None, torch.float32)
            error = float((got.double() - want).norm() / want.norm())
            uncut = few.multiply(x, matrix, None, torch.float32, is_cut=False)
            is_equal = torch.equal(uncut, plain.multiply(x, wide, None, torch.float32, is_cut=False))
            alone = few.multiply(x[-1:].contiguous(), matrix, None, torch.float32, is_cut=False)
            is_equal = f"{is_equal}, alone {torch.equal(alone[0], uncut[-1])}"

            def product(each: Tensor, x: Tensor = x) -> Tensor:
                if len(x) == 1 and not activation:
                    return one_row(x, each, None, x.dtype)
                return plain.multiply(x, each, None, x.dtype, activation)

            def timed(call: Callable[[Int4], Tensor]) -> float:
                return microseconds([partial(call, each) for each in copies])

            base = microseconds([partial(product, each) for each in wides])
            best = timed(lambda each, x=x: few.multiply(x, each, None, x.dtype, activation))
            whole = timed(lambda each, x=x: few.multiply(x, each, None, x.dtype, activation, is_cut=False))
            others = [
                (timed(lambda each, x=x, one=one: few.launch(x, each, None, x.dtype, activation, *one)), one)
                for one in (settings(name, rows) if args.settings else ())
            ]
            shown = ", ".join(f"{splits}/{stages} {took:.1f}" for took, (splits, stages) in sorted(others))
            figures = f"{base:.1f}", f"{best:.1f}", f"{floor:.1f}", f"{base / best:.2f}"
            row(name, rows, *figures, f"{error:.1e}", is_equal, f"{whole:.1f}", shown)
        del copies, wides


if __name__ == "__main__":
    main()
