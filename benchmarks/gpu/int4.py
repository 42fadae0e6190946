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
from chairlift.runner.cuda.products.int4 import TILE, Int4, int4
from chairlift.runner.cuda.products.one_row import gated, one_row
from chairlift.runner.cuda.products.packed import Packed

DEVICE = torch.device("cuda")
SHAPES = {"QKV": (6144, 4096), "out": (4096, 4096), "gate-up": (28672, 4096), "down": (4096, 14336)}
GROUP, RATE, TURNED = 128, 4.2e12, 400e6  # columns; bytes a second; bytes of all copies
SPLITS = {"QKV": (2, 4, 8), "out": (2, 4, 8), "gate-up": (1, 2, 4), "down": (2, 4, 7, 14)}
# Stages and tiles, by the rows that a kernel takes.
STAGES = {8: ((2, 4), (3, 4), (4, 4), (2, 8), (6, 2)), 16: ((2, 4), (3, 4)), 32: ((2, 4), (3, 4)), 64: ((2, 4), (4, 2))}
Setting = tuple[int, int, int]  # splits, stages, tiles


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
    columns = SHAPES[name][1]
    for splits, (stages, tiles) in itertools.product(SPLITS[name], STAGES[kernel_rows]):
        if columns // splits % (tiles * TILE) == 0:
            yield splits, stages, tiles


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
    dtype = getattr(torch, args.scales)
    counts = [int(each) for each in args.rows.split(",")]
    processors = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    plain, few = FewRows(DEVICE, processors), FewRowsInt4(DEVICE, processors)
    if args.compile:
        part, parts = map(int, args.compile.split("/"))
        todo = [(name, rows, each) for name in SHAPES for rows in counts for each in settings(name, rows)]
        for name, rows, setting in todo[part::parts]:
            matrix = drawn((256, SHAPES[name][1]), dtype, args.symmetric, name == "gate-up")
            x = torch.randn(rows, matrix.columns, device=DEVICE).bfloat16()
            few.launch(x, matrix, None, x.dtype, "silu" if name == "gate-up" else "", *setting)
        torch.cuda.synchronize()
        return
    row("matrix", "rows", "bf16, us", "4 bits, us", "read, us", "times", "uncut, us", "error", "bits", "settings")
    print("|" + "---|" * 10)
    for name in SHAPES:
        for rows in counts:
            row(name, rows, *measured(name, rows, args.settings, plain, few, dtype, args.symmetric))


def measured(
    name: str, rows: int, with_settings: bool, plain: FewRows, few: FewRowsInt4, scales: torch.dtype, is_symmetric: bool
) -> list[str]:
    shape, is_paired = SHAPES[name], name == "gate-up"
    activation = "silu" if is_paired else ""
    matrix = drawn(shape, scales, is_symmetric, is_paired)
    copies = [drawn(shape, scales, is_symmetric, is_paired) for _ in range(int(TURNED / bytes_of(matrix)))]
    wide = torch.empty(shape, dtype=torch.bfloat16, device=DEVICE)
    matrix.widen(wide)
    wides = [wide.clone() for _ in range(max(2, int(TURNED / wide.nbytes)))]
    x = torch.randn(rows, shape[1], device=DEVICE).bfloat16()
    want = x.double() @ wide.double().t()
    got = few.multiply(x, matrix, None, torch.float32)
    uncut = few.multiply(x, matrix, None, torch.float32, is_cut=False)
    alone = few.multiply(x[-1:].contiguous(), matrix, None, torch.float32, is_cut=False)
    is_equal = torch.equal(uncut, plain.multiply(x, wide, None, torch.float32, is_cut=False))
    is_equal = is_equal and torch.equal(alone[0], uncut[-1])

    def by_numbers(each: Tensor) -> Tensor:
        if rows > 1:
            return plain.multiply(x, each, None, x.dtype, activation)
        return gated(x, each, activation) if activation else one_row(x, each, None, x.dtype)

    def by_codes(each: Int4, *, is_cut: bool) -> Tensor:
        return few.multiply(x, each, None, x.dtype, activation, is_cut)

    def by_setting(each: Int4, *, setting: Setting) -> Tensor:
        return few.launch(x, each, None, x.dtype, activation, *setting)

    base = microseconds([partial(by_numbers, each) for each in wides])
    chosen, whole = (microseconds([partial(by_codes, each, is_cut=cut) for each in copies]) for cut in (True, False))
    others = [
        (microseconds([partial(by_setting, each, setting=one) for each in copies]), one)
        for one in (settings(name, rows) if with_settings else ())
    ]
    shown = ", ".join(f"{'/'.join(map(str, one))} {took:.1f}" for took, one in sorted(others)[:7])
    floor = bytes_of(matrix) / RATE * 1e6
    error = float((got.double() - want).norm() / want.norm())
    figures = [f"{each:.1f}" for each in (base, chosen, floor)]
    return [*figures, f"{base / chosen:.2f}", f"{whole:.1f}", f"{error:.1e}", "equal" if is_equal else "OTHERS", shown]


if __name__ == "__main__":
    main()
