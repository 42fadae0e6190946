"""Times the native kernels against oneDNN's packed products, a step by operation, sampling, and quantised products.

    python benchmarks/cpu/native_ops.py [--model 135m|1.1b] [--threads 2] [--passes 20]
        [--only linear|step|sampling|quantised]

Both sides take turns within each pass, and the smallest time of all passes counts: the machine may be shared. Quantised
products are those of one layer; a tile is 4 rows by 16 outputs by 32 columns. Only the 1.1B shape fits super-blocks.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request
from chairlift.models.files.gguf.header import TENSOR_TYPES
from chairlift.models.mixers.attention import AttentionSpec, Rotation
from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.native.quantised import KINDS
from chairlift.runner.ops import Attention, Batch, Norm, Weight
from chairlift.runner.rope import rotation_table
from chairlift.runner.sampling.sampler import choose
from chairlift.runner.sampling.table import BatchTable
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.source import Stored


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int

    def matrices(self) -> list[tuple[int, int]]:
        qkv = ((self.heads + 2 * self.kv_heads) * self.head_dim, self.hidden)
        one = [qkv, (self.hidden, self.heads * self.head_dim), (2 * self.inner, self.hidden), (self.hidden, self.inner)]
        return one * self.layers + [(self.vocab, self.hidden)]


SHAPES = {"135m": Shape(30, 576, 9, 3, 64, 1536, 49152), "1.1b": Shape(22, 2048, 32, 4, 64, 5632, 32000)}
BLOCK = 16
TILE = 4 * 16 * 32  # multiply-adds


class Model:
    def __init__(self, shape: Shape, ops: NativeOps) -> None:
        self.shape, self.ops = shape, ops
        self.weights = [ops.weight(matrix(n, k)) for n, k in shape.matrices()]
        self.head = self.weights[-1]
        self.norm = Norm(torch.ones(shape.hidden), 1e-5)
        rotation = Rotation(theta=10000.0)
        spec = AttentionSpec(
            num_heads=shape.heads, num_kv_heads=shape.kv_heads, head_dim=shape.head_dim, scale=shape.head_dim**-0.5,
            rotation=rotation,
        )  # fmt: skip
        table = rotation_table(rotation, shape.head_dim, 2048, torch.float32)
        self.attention = Attention(spec, table, None, None, 1e-5)
        cache = (32 * 16 + 64, shape.kv_heads, BLOCK, shape.head_dim)
        self.keys, self.values = (
            [torch.randn(cache, dtype=torch.bfloat16) for _ in range(shape.layers)] for _ in range(2)
        )

    def step(self, batch: Batch, call: Callable[..., Any]) -> None:
        ops, shape = self.ops, self.shape
        x = call("rows", self.head.rows, batch.tokens)
        residual = torch.zeros_like(x)
        for i in range(shape.layers):
            qkv, output, gate_up, down = self.weights[4 * i : 4 * i + 4]
            x, residual = call("norm", ops.add_norm, x, residual, self.norm)
            x = call("qkv", qkv.linear, x)
            keys, values = self.keys[i], self.values[i]
            q = call("rotate", ops.rotate_and_store, x, self.attention, keys, values, batch)
            x = call("attention", ops.attention, q, self.attention.spec, keys, values, batch)
            x = call("output", output.linear, x)
            x, residual = call("norm", ops.add_norm, x, residual, self.norm)
            x = call("gate_up", gate_up.linear, x)
            x = call("activation", ops.activate, x, "silu")
            x = call("down", down.linear, x)
        x, _ = call("norm", ops.add_norm, x, residual, self.norm)
        logits = call("head", self.head.logits, x[batch.logit_rows])
        call("argmax", ops.argmax, logits)


def matrix(n: int, k: int) -> Tensor:
    return torch.empty(n, k, dtype=torch.bfloat16).normal_(0, 0.02)


def batch_of(counts: list[int], contexts: list[int]) -> Batch:
    """Chunk r computes the last counts[r] of contexts[r] tokens; each request has blocks of its own."""
    width = -(-max(contexts) // BLOCK)
    tables = torch.arange(len(counts) * width, dtype=torch.int32).view(len(counts), width)
    positions = [torch.arange(c - n, c) for n, c in zip(counts, contexts, strict=True)]
    slots = [t[p // BLOCK].long() * BLOCK + p % BLOCK for t, p in zip(tables, positions, strict=True)]
    starts = torch.tensor([0, *counts]).cumsum(0).int()
    return Batch(
        torch.randint(0, 1000, (sum(counts),)), torch.cat(positions), torch.cat(slots), starts,
        torch.tensor(contexts).int(), tables, sum(n == 1 for n in counts), max(contexts), starts[1:].long() - 1,
    )  # fmt: skip


def time_linears(shape: Shape, ops: NativeOps, passes: int) -> None:
    sizes = shape.matrices()
    plain = [matrix(n, k) for n, k in sizes]
    native: list[Weight] = [ops.weight(w) for w in plain]
    print(f"{'rows':>6} {'native ms':>10} {'oneDNN ms':>10} {'GB/s':>6} {'TFLOP/s':>8}")
    num_weights = sum(n * k for n, k in sizes)
    for rows in (1, 8, 16, 32, 64, 256, 512):
        xs = {k: torch.randn(rows, k, dtype=torch.bfloat16) for _, k in sizes}
        packed = [torch.ops.mkldnn._reorder_linear_weight(w, rows) for w in plain]
        best = [float("inf")] * 2
        for _ in range(passes):
            start = time.perf_counter()
            for (_, k), w in zip(sizes, native, strict=True):
                w.linear(xs[k])
            middle = time.perf_counter()
            for (_, k), p in zip(sizes, packed, strict=True):
                torch.ops.mkldnn._linear_pointwise(xs[k], p, None, "none", [], "")
            end = time.perf_counter()
            best = [min(best[0], middle - start), min(best[1], end - middle)]
        rates = num_weights * 2 / best[0] / 1e9, num_weights * 2 * rows / best[0] / 1e12
        print(f"{rows:6} {best[0] * 1e3:10.2f} {best[1] * 1e3:10.2f} {rates[0]:6.1f} {rates[1]:8.2f}", flush=True)


def time_steps(shape: Shape, ops: NativeOps, passes: int) -> None:
    model = Model(shape, ops)
    steps = {
        "decode 1 x 200": batch_of([1], [200]),
        "decode 32 x 200": batch_of([1] * 32, list(range(169, 201))),
        "prompts 4 x 128": batch_of([128] * 4, [128] * 4),
        "prompt 512": batch_of([512], [512]),
    }
    for name, batch in steps.items():
        parts: dict[str, list[float]] = defaultdict(list)
        whole = []
        for _ in range(passes):
            start = time.perf_counter()
            model.step(batch, lambda _, f, *arguments: f(*arguments))
            whole.append(time.perf_counter() - start)
            for part, seconds in timed_parts(model, batch).items():
                parts[part].append(seconds)
        middle = sorted(whole)[len(whole) // 2]
        print(f"{name}: {min(whole) * 1e3:.2f} ms (median {middle * 1e3:.2f})")
        print("   " + ", ".join(f"{part} {min(seconds) * 1e3:.2f}" for part, seconds in parts.items()), flush=True)


def timed_parts(model: Model, batch: Batch) -> dict[str, float]:
    parts: dict[str, float] = defaultdict(float)

    def call(name: str, f: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        result = f(*arguments)
        parts[name] += time.perf_counter() - start
        return result

    model.step(batch, call)
    return parts


def time_sampling(shape: Shape, ops: NativeOps, passes: int) -> None:
    kinds = {
        "plain": SamplingParams(),
        "top-k 40": SamplingParams(top_k=40),
        "top-p 0.9": SamplingParams(top_p=0.9),
        "top-p 0.98 at temperature 3": SamplingParams(top_p=0.98, temperature=3.0),
        "top-k 500, top-p 0.95": SamplingParams(top_k=500, top_p=0.95),
    }
    logits = torch.randn(32, shape.vocab) * 3
    print(f"{'32 rows, ms':>28} {'native':>8} {'torch':>8}")
    for name, params in kinds.items():
        asked = [Request(id=RequestId(i), prompt=(1,), params=params, max_output=1, seed=i) for i in range(32)]
        samples, _ = BatchTable().of(1, asked, [1] * len(asked))
        best = [float("inf")] * 2
        for _ in range(passes):
            for side, with_ops in enumerate((ops, TorchOps())):
                own = logits.clone()
                start = time.perf_counter()
                choose(own, samples, with_ops)
                best[side] = min(best[side], time.perf_counter() - start)
        print(f"{name:>28} {best[0] * 1e3:8.2f} {best[1] * 1e3:8.2f}", flush=True)


def time_quantised(shape: Shape, ops: NativeOps, passes: int) -> None:
    sizes, threads = shape.matrices()[:4], torch.get_num_threads()
    print(f"{'type':>6} {'rows':>5} {'ms':>8} {'GB/s':>6} {'GMAC/s':>7} {'of a core':>9} {'ns a tile':>9}")
    for name, items, num_bytes in (TENSOR_TYPES[kind] for kind in sorted(KINDS.values())):
        if any(k % items for _, k in sizes):
            continue
        weights = [zeros(name, n, k, (items, num_bytes), ops) for n, k in sizes]
        weight_bytes = sum(n * k for n, k in sizes) // items * num_bytes
        for rows in (1, 4, 32):
            xs = {k: torch.randn(rows, k) for _, k in sizes}
            best = float("inf")
            for _ in range(passes):
                start = time.perf_counter()
                for (_, k), w in zip(sizes, weights, strict=True):
                    w.linear(xs[k])
                best = min(best, time.perf_counter() - start)
            rate = sum(n * k for n, k in sizes) * rows / best / 1e9
            print(
                f"{name:>6} {rows:5} {best * 1e3:8.3f} {weight_bytes / best / 1e9:6.1f} {rate:7.1f} "
                f"{rate / threads:9.1f} {TILE * threads / rate:9.1f}",
                flush=True,
            )


def zeros(kind: str, n: int, k: int, block: tuple[int, int], ops: NativeOps) -> Weight:
    """Blocks of zeros: other numbers take as long. block: its numbers and its bytes."""
    group, size = block
    raw = torch.zeros(n, k // group, size, dtype=torch.uint8)
    return ops.stored_weight([Stored("zeros", kind, (raw,), (n, k), group)], None, torch.float32)


MEASURES = {"linear": time_linears, "step": time_steps, "sampling": time_sampling, "quantised": time_quantised}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(SHAPES), default="135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--only", choices=list(MEASURES))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    ops, shape = NativeOps(arguments.threads), SHAPES[arguments.model]
    print(f"{arguments.model}, {arguments.threads} threads, {library.instruction_set()}")
    for name, measure in MEASURES.items():
        if arguments.only in (None, name):
            measure(shape, ops, arguments.passes)


if __name__ == "__main__":
    main()
