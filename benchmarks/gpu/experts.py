"""Mixtures of experts on a GPU, kernel by kernel, against what memory and tensor cores allow. Prints a table.

    python benchmarks/gpu/experts.py [--shape qwen3-30b-a3b] [--rows 1,4,16,64] [--exact | --plain]

router    the router's product and the choice
sort      rows by expert, on the device
gate_up   the grouped product with the activation
down      the grouped product, and the weighted sum of the choices
by expert all of these, as a step launches them for many rows
by row    the same by the kernels that read the experts of each row: for few rows
floor     reading the chosen experts once, or their multiplications, whichever takes longer

Random numbers, bf16; gpt-oss-20b's experts in MXFP4, few rows on Hopper by the kernel for it unless `--plain`. Each is
captured in a graph with several copies of the weights, so that none is found in the cache.
"""

import argparse

import torch
from by_kernel import MEMORY_TB_S, micros
from torch import Tensor

from chairlift.models.spec import ExpertsSpec, FeedForwardSpec
from chairlift.runner.cuda.experts.experts import best_tile, by_expert, by_row, choose, sort
from chairlift.runner.cuda.experts.hopper import HopperExperts
from chairlift.runner.cuda.experts.matrices import CudaExperts as Matrices
from chairlift.runner.cuda.hopper import Hopper
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.ops import Experts

ROWS = (1, 2, 4, 8, 16, 64, 256, 1024, 4096)
MOST_BY_ROW = 16
TFLOPS = 800  # of bf16, that an H200 has been seen to reach
COPIES = 3  # of a layer's experts: each is more than the cache holds
SHAPES = {
    "qwen3-30b-a3b": (2048, FeedForwardSpec(
        width=768, experts=ExpertsSpec(count=128, num_chosen=8, is_normalised=True)
    )),
    "gemma4-26b-a4b": (2816, FeedForwardSpec(
        width=704, activation="gelu_tanh", experts=ExpertsSpec(count=128, num_chosen=8, is_normalised=True)
    )),
    "gpt-oss-20b": (2880, FeedForwardSpec(
        width=2880, activation="clamped", experts=ExpertsSpec(count=32, num_chosen=4, scores="chosen", has_bias=True)
    )),
}  # fmt: skip


def layer(ops: CudaOps, hidden: int, spec: FeedForwardSpec, is_mxfp4: bool) -> Experts:
    rule = spec.experts
    assert rule is not None

    def matrices(rows: int, columns: int) -> Matrices:
        bias = numbers(rule.count, rows) if rule.has_bias else None
        if not is_mxfp4:
            return Matrices(numbers(rule.count, rows, columns), bias)
        blocks = torch.randint(0, 256, (rule.count, rows, columns // 2), dtype=torch.uint8, device="cuda")
        return Matrices(
            blocks, bias, torch.full((rule.count, rows, columns // 32), 120, dtype=torch.uint8, device="cuda")
        )

    gate_up, down = matrices(2 * spec.width, hidden), matrices(hidden, spec.width)
    return Experts(spec, ops.weight(numbers(rule.count, hidden)), None, gate_up, down)


def numbers(*shape: int) -> Tensor:
    return (torch.randn(shape, device="cuda") * 0.05).bfloat16()


def floor_us(num_rows: int, num_hit: int, hidden: int, spec: FeedForwardSpec, bits: float) -> float:
    assert spec.experts is not None
    weights = 3 * hidden * spec.width
    reading = num_hit * weights * bits / 8 / (MEMORY_TB_S * 1e6)
    return max(reading, num_rows * spec.experts.num_chosen * 2 * weights / (TFLOPS * 1e6))


@torch.inference_mode()
def measure(name: str, counts: list[int], exact: bool, is_plain: bool) -> None:
    hidden, spec = SHAPES[name]
    is_mxfp4 = name == "gpt-oss-20b"
    ops, hopper = CudaOps(exact), Hopper()
    if is_mxfp4 and not is_plain:
        hopper.begin(torch.device("cuda"), has_mxfp4=True)
    layers = [layer(ops, hidden, spec, is_mxfp4) for _ in range(COPIES)]
    print(f"\n{name}, microseconds\n\n| rows | tile | router | sort | gate_up | down | by expert | by row | floor |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for count in counts:
        print_row(numbers(count, hidden) * 20, layers, 4.25 if is_mxfp4 else 16, exact, hopper.experts)


def print_row(
    x: Tensor, layers: list[Experts], bits: float, exact: bool, hopper: HopperExperts | None
) -> None:  # fmt: skip
    spec, rule, count = layers[0].spec, layers[0].rule, len(x)
    ups, downs = ([getattr(each, name) for each in layers] for name in ("gate_up", "down"))
    ids, weights = choose(layers[0].router.logits(x), rule, None)
    tile = best_tile(x, layers[0], exact, hopper)
    order = sort(ids, rule.count, tile.rows)
    active = tile.multiply(x, ups[0], order, rule.num_chosen, spec.activation)
    times = [
        micros(lambda i: choose(layers[i].router.logits(x), rule, None), COPIES),
        micros(lambda i: sort(ids, rule.count, tile.rows), COPIES),
        micros(lambda i: tile.multiply(x, ups[i], order, rule.num_chosen, spec.activation), COPIES),
        micros(lambda i: tile.multiply(active, downs[i], order, 1), COPIES),
        micros(lambda i: by_expert(x, layers[i], ids, weights, None, tile), COPIES),
    ]
    if count <= MOST_BY_ROW:
        times.append(micros(lambda i: by_row(x, layers[i], ids, weights, None), COPIES))
    shown = [f"{time:.1f}" for time in times] + [""] * (6 - len(times))
    floor = floor_us(count, len(ids.unique()), x.shape[1], spec, bits)
    print(f"| {count} | {tile.rows} | {' | '.join(shown)} | {floor:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, help="default: all")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--exact", action="store_true", help="tiles of --exact")
    parser.add_argument("--plain", action="store_true", help="no kernel for Hopper")
    asked = parser.parse_args()
    for name in [asked.shape] if asked.shape else SHAPES:
        measure(name, [int(count) for count in asked.rows.split(",")], asked.exact, asked.plain)


if __name__ == "__main__":
    main()
