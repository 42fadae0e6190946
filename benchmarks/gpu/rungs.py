"""Numbers of rows that cuBLAS multiplies well: milliseconds of a model's products by rows, and the rungs they suggest.

    python benchmarks/gpu/rungs.py [--shape llama3-8b] [--low 1024] [--high 2048] [--rungs 8] [--out FILE]
    python benchmarks/gpu/rungs.py --sustained 1536,3072,8000

Each number of rows by products of some layers in a captured graph. The rungs found are those with the least time over
that of the best number, were all numbers of rows between as likely. `--out`: a line of JSON for each number of rows.
`--sustained`: each of these for a second and more, with the clock and the power that nvidia-smi names then.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Sequence

import torch
from engine import DEVICE, DTYPE, SHAPES

from chairlift.models.spec import ModelConfig

_LAYERS = 6  # more than the caches of the GPU hold
_REPEATS = 5
_SECONDS = 1.5


class Products:
    """Of layers of one shape."""

    def __init__(self, config: ModelConfig, max_rows: int) -> None:
        hidden, inner = config.hidden_size, config.layers[0].feed_forward.width
        attention = config.layers[0].attention
        heads = attention.num_heads * attention.head_dim
        kv_heads = attention.num_kv_heads * attention.head_dim
        shapes = ((heads + 2 * kv_heads, hidden), (hidden, heads), (2 * inner, hidden), (hidden, inner))
        self.flops_per_row = 2 * sum(outputs * inputs for outputs, inputs in shapes)
        self._weights = [[torch.randn(each, device=DEVICE, dtype=DTYPE) for each in shapes] for _ in range(_LAYERS)]
        self._inputs = {inputs: torch.randn(max_rows, inputs, device=DEVICE, dtype=DTYPE) for _, inputs in shapes}
        self._out = torch.empty(max_rows * max(outputs for outputs, _ in shapes), device=DEVICE, dtype=DTYPE)

    def captured(self, num_rows: int) -> torch.cuda.CUDAGraph:
        self._multiply(num_rows)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._multiply(num_rows)
        return graph

    def _multiply(self, num_rows: int) -> None:
        for layer in self._weights:
            for weight in layer:
                outputs, inputs = weight.shape
                out = self._out[: num_rows * outputs].view(num_rows, outputs)
                torch.mm(self._inputs[inputs][:num_rows], weight.t(), out=out)


def layer_ms(graph: torch.cuda.CUDAGraph) -> float:
    graph.replay()
    took = []
    for _ in range(_REPEATS):
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began.record()
        graph.replay()
        ended.record()
        torch.cuda.synchronize()
        took.append(began.elapsed_time(ended))
    return sorted(took)[_REPEATS // 2] / _LAYERS


def best_rungs(times: dict[int, float], low: int, high: int, num_rungs: int) -> tuple[float, tuple[int, ...]]:
    """(mean time over the best, rungs) for numbers of rows above `low`; the last rung is `high`."""
    rows = sorted(each for each in times if low < each <= high)
    best = {n: min(took for each, took in times.items() if each >= n) for n in range(low + 1, high + 1)}
    found: dict[int, tuple[float, tuple[int, ...]]] = {low: (0.0, ())}  # by the last rung
    for _ in range(num_rungs):
        found = {
            rung: min(
                (cost + sum(times[rung] / best[n] for n in range(last + 1, rung + 1)), (*rungs, rung))
                for last, (cost, rungs) in found.items()
                if last < rung
            )
            for rung in rows
            if any(last < rung for last in found)
        }
    cost, rungs = found[high]
    return cost / (high - low), rungs


def sustain(products: Products, numbers: Sequence[int], num_layers: int) -> None:
    for num_rows in numbers:
        graph = products.captured(num_rows)
        began, count = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < _SECONDS:
            graph.replay()
            torch.cuda.synchronize()
            count += 1
        query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader"]
        seen = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
        per_layer = took / count / _LAYERS
        figures = {"rows": num_rows, "ms": round(1000 * per_layer * num_layers, 2)}
        tflops = products.flops_per_row * num_rows / per_layer / 1e12
        print(json.dumps({**figures, "tflops": round(tflops), "clock_and_power": seen}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="llama3-8b", choices=sorted(SHAPES))
    parser.add_argument("--low", type=int, default=1024)
    parser.add_argument("--high", type=int, default=2048)
    parser.add_argument("--rungs", type=int, default=8)
    parser.add_argument("--sustained", default="")
    parser.add_argument("--out")
    args = parser.parse_args()
    config = SHAPES[args.shape]
    sustained = [int(each) for each in args.sustained.split(",") if each]
    products = Products(config, max([args.high, *sustained]))
    if sustained:
        sustain(products, sustained, config.num_layers)
        return
    numbers = sorted({n + more for n in range(args.low, args.high + 1, 64) for more in (-8, 0, 8)})
    numbers = [n for n in numbers if args.low <= n <= args.high]
    times = {n: config.num_layers * layer_ms(products.captured(n)) for n in numbers}
    if args.out:
        with open(args.out, "w") as file:
            file.writelines(json.dumps({"rows": n, "ms": round(took, 3)}) + "\n" for n, took in times.items())
    over, rungs = best_rungs(times, args.low, args.high, args.rungs)
    print(json.dumps({"shape": args.shape, "over_best": round(over, 4), "rungs": rungs}))


if __name__ == "__main__":
    main()
