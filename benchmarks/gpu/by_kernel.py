"""The kernels of a step on a GPU one by one, whole steps, and whether the GPU ever waits. Prints tables in Markdown.

    python benchmarks/gpu/by_kernel.py [--shape llama3-8b] [--parts products,attention,...] [--json]
    python benchmarks/gpu/by_kernel.py --busy --workload FILE
    python benchmarks/gpu/by_kernel.py --host

products   all matrix products of a step, by number of rows: cuBLAS, cuBLASLt, and our own for one row and for few
attention  decodes of mixed contexts: microseconds, and the speed at which keys and values are read
prompts    prompt attention: the plain kernel, and the one for Hopper where it can be used
small      norm, rotation with the cache write, activation
sampling   choosing 256 tokens
steps      the kernels of a captured step of decodes, by torch's profiler
--busy     the share of a run of the workload in which the GPU was busy: engine and runner alone, 256 running
--host     what the host does for a step of 1,024 decodes

Random weights, bf16. Single kernels are captured several times in a graph, each time with memory of its own where a
step would not find it in the cache, and the graph is timed. Each line of FILE has prompt_tokens and output_tokens.
"""

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from engine import BLOCK_SIZE, DEVICE, DTYPE, MAX_LEN, SHAPES
from steps import Row, busy, host, steps
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import ModelConfig
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.hopper import Hopper
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products.hopper import MAX_ROWS
from chairlift.runner.cuda.products.one_row import one_row
from chairlift.runner.cuda.sampling.rows import DRAW_WIDTH
from chairlift.runner.cuda.sampling.sampler import draw
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.ops import Attention, Norm

ROWS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512)
COPIES = 8  # of what a kernel reads: together more than the cache holds
MIXES = (
    (1, 128, 384), (16, 20, 400), (64, 20, 400), (256, 20, 300), (256, 20, 500), (256, 600, 700), (64, 600, 680),
    (4, 8000, 8000), (12, 1000, 15000), (16, 500, 16000), (40, 500, 15000), (64, 200, 5000),
)  # fmt: skip
PROMPTS = ((8, 512), (4, 1024), (2, 2048), (1, 1000), (1, 4096), (1, 8192))  # number, tokens
DRAWS = {"no filter": (0, 1.0, 0.0), "top-p": (0, 0.9, 0.0), "top-k, top-p, min-p": (50, 0.9, 0.05)}
MEMORY_TB_S = 4.06  # at which an H200 has been seen to read


def micros(work: Callable[[int], object], copies: int = COPIES) -> float:
    """Of one call, in a graph of one for each copy; the median of some."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for copy in range(copies):
            work(copy)
    graph.replay()
    times = []
    for _ in range(7):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        for _ in range(3):
            graph.replay()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) * 1e3 / 3 / copies)
    return statistics.median(times)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=DTYPE, device=DEVICE)


def products(config: ModelConfig) -> list[Row]:
    width, inner, spec = config.hidden_size, config.layers[0].feed_forward.width, config.layers[0].attention
    num_out = spec.num_heads + 2 * spec.num_kv_heads
    shapes = {"qkv": (num_out * spec.head_dim, width), "output": (width, spec.num_heads * spec.head_dim)}
    shapes |= {"gate_up": (2 * inner, width), "down": (width, inner), "head": (config.vocab_size, width)}
    matrices = {name: [drawn(*shape) for _ in range(COPIES if name != "head" else 1)] for name, shape in shapes.items()}
    num_layers = {name: 1 if name == "head" else config.num_layers for name in shapes}
    num_bytes = sum(2 * out * wide * num_layers[name] for name, (out, wide) in shapes.items())

    def timed(product: Callable[[str, Tensor, Tensor], Tensor], name: str, num_rows: int) -> float:
        x, own = drawn(num_rows, shapes[name][1]), matrices[name]
        return micros(lambda i: product(name, x, own[i]), len(own))

    hopper = Hopper()
    hopper.begin(DEVICE)
    rows = []
    for num_rows in ROWS:
        has_own = num_rows == 1 or (hopper.few_rows is not None and num_rows <= MAX_ROWS)
        for library in ("own", "cublas", "cublaslt") if has_own else ("cublas", "cublaslt"):
            torch.backends.cuda.preferred_blas_library("cublas" if library == "own" else library)
            product = partial(_own, hopper) if library == "own" else _library
            each = {name: timed(product, name, num_rows) for name in shapes}
            seconds = sum(time_us * num_layers[name] for name, time_us in each.items()) / 1e6
            rows.append(
                {
                    "rows": num_rows,
                    "by": library,
                    "ms a step": round(seconds * 1e3, 3),
                    "TB/s of weights": round(num_bytes / seconds / 1e12, 2),
                    "TFLOP/s": round(num_bytes * num_rows / seconds / 1e12, 1),
                    **{f"{name} us": round(time_us, 1) for name, time_us in each.items()},
                }
            )
    torch.backends.cuda.preferred_blas_library("default")
    return rows


def _own(hopper: Hopper, name: str, x: Tensor, matrix: Tensor) -> Tensor:
    dtype = torch.float32 if name == "head" else DTYPE
    if len(x) == 1:
        return one_row(x, matrix, None, dtype)
    assert hopper.few_rows is not None
    return hopper.few_rows.multiply(x, matrix, None, dtype)


def _library(name: str, x: Tensor, matrix: Tensor) -> Tensor:
    return torch.mm(x, matrix.t(), out_dtype=torch.float32) if name == "head" else F.linear(x, matrix)


class Paged:
    """Keys and values of some contexts in shuffled blocks, several times over, and a step at their ends."""

    def __init__(self, spec: AttentionSpec, contexts: list[int], copies: int) -> None:
        lengths = [-(-context // BLOCK_SIZE) for context in contexts]
        blocks = torch.randperm(sum(lengths), dtype=torch.int32).split(lengths)
        tables = torch.zeros(len(contexts), max(MAX_LEN // BLOCK_SIZE, *lengths), dtype=torch.int32)
        for table, own in zip(tables, blocks, strict=True):
            table[: len(own)] = own
        shape = (sum(lengths), spec.num_kv_heads, BLOCK_SIZE, spec.head_dim)
        self.keys, self.values = ([drawn(*shape) for _ in range(copies)] for _ in range(2))
        self._spec, self._contexts, self._tables = spec, contexts, tables.to(DEVICE)
        self.width = tables.shape[1]

    def batch(self, is_prompt: bool) -> CudaBatch:
        """A decode at the end of each context, or all of each as a prompt in tiles of queries."""
        nothing = torch.empty(0, dtype=torch.int32, device=DEVICE)
        last = torch.tensor(self._contexts, dtype=torch.int32, device=DEVICE) - 1
        rows = torch.arange(len(last), dtype=torch.int32, device=DEVICE)
        slots = self._tables[rows, last // BLOCK_SIZE] * BLOCK_SIZE + last % BLOCK_SIZE
        longest = 1 << (max(self._contexts) - 1).bit_length()
        return CudaBatch(
            tokens=nothing, positions=last, slots=slots, starts=nothing, contexts=nothing, tables=self._tables,
            num_decodes=0, max_context=0, logit_rows=None, table_rows=rows,
            tiling=choose_tiling(len(last), longest, self._spec.has_groups),
            tiles=self._tiles() if is_prompt else None, short_positions=nothing if is_prompt else last,
        )  # fmt: skip

    def _tiles(self) -> Tensor:
        tiles, low = [], 0
        for row, length in enumerate(self._contexts):
            tiles += [(low + i, min(QUERIES, length - i), i, row) for i in range(0, length, QUERIES)]
            low += length
        return torch.tensor(tiles, dtype=torch.int32, device=DEVICE)


def attention(config: ModelConfig) -> list[Row]:
    rng = random.Random(0)
    return [_attention(config, [rng.randint(low, high) for _ in range(count)]) for count, low, high in MIXES]


def _attention(config: ModelConfig, contexts: list[int]) -> Row:
    ops, count, spec = CudaOps(), len(contexts), config.layers[0].attention
    copies = COPIES if count > 16 else config.num_layers
    paged = Paged(spec, contexts, copies)
    q, batch = drawn(count, spec.num_heads, spec.head_dim), paged.batch(is_prompt=False)
    time_us = micros(lambda i: ops.attention(q, spec, paged.keys[i], paged.values[i], batch), copies)
    num_bytes = sum(contexts) * 2 * spec.num_kv_heads * spec.head_dim * DTYPE.itemsize
    return {
        "rows": count,
        "contexts": f"{min(contexts)}-{max(contexts)}",
        "us": round(time_us, 1),
        "TB/s": round(num_bytes / time_us / 1e6, 2),
        f"us at {MEMORY_TB_S} TB/s": round(num_bytes / MEMORY_TB_S / 1e6, 1),
        "cut": str(tuple(batch.tiling)),
    }


def prompts(config: ModelConfig) -> list[Row]:
    return [_prompts(config, count, length) for count, length in PROMPTS]


def _prompts(config: ModelConfig, count: int, length: int) -> Row:
    spec = config.layers[0].attention
    paged = Paged(spec, [length] * count, COPIES)
    q, batch = drawn(count * length, spec.num_heads, spec.head_dim), paged.batch(is_prompt=True)
    work = count * length * length / 2 * 4 * spec.num_heads * spec.head_dim  # half of it is masked
    chosen = CudaOps()
    heads = Attention(spec, torch.empty(0, spec.head_dim, device=DEVICE), None, None, 1e-5)
    chosen.choose_kernels([heads], DTYPE, BLOCK_SIZE, paged.width, DEVICE)
    row: Row = {"prompts": f"{count} x {length}"}
    for name, ops in {"plain": CudaOps(), "chosen": chosen}.items():
        time_us = micros(lambda i, ops=ops: ops.attention(q, spec, paged.keys[i], paged.values[i], batch))
        row |= {f"{name} us": round(time_us, 1), f"{name} TFLOP/s": round(work / time_us / 1e6)}
    return row


def small(config: ModelConfig) -> list[Row]:
    return [_small(config, count) for count in (1, 256, 512)]


def _small(config: ModelConfig, count: int) -> Row:
    ops, spec, inner = CudaOps(), config.layers[0].attention, config.layers[0].feed_forward
    paged = Paged(spec, [300] * count, 1)
    batch, keys, values = paged.batch(is_prompt=False), paged.keys[0], paged.values[0]
    gain, rotation = (torch.randn(shape, device=DEVICE) for shape in (config.hidden_size, (MAX_LEN, spec.head_dim)))
    heads = Attention(spec, rotation, None, None, 1e-5)
    x, residual = drawn(count, config.hidden_size), drawn(count, config.hidden_size)
    qkv = drawn(count, (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim)
    gate_up = drawn(count, 2 * inner.width)
    kernels: dict[str, Callable[[int], object]] = {
        "norm us": lambda _: ops.add_norm(x, residual, Norm(gain, 1e-5)),
        "rotation us": lambda _: ops.rotate_and_store(qkv, heads, keys, values, batch),
        "activation us": lambda _: ops.activate(gate_up, inner.activation),
    }
    return {"rows": count, **{name: round(micros(kernel), 2) for name, kernel in kernels.items()}}


def sampling(config: ModelConfig, count: int = 256) -> list[Row]:
    """Logits with a few likely tokens over a noisy tail, about as a model gives them."""
    logits = torch.randn(count, config.vocab_size, device=DEVICE) * 2.5
    logits += (torch.rand_like(logits) < 3e-4) * torch.empty_like(logits).exponential_(0.25)
    tokens, last = (torch.zeros(count, dtype=torch.int64, device=DEVICE) for _ in range(2))
    rows: list[Row] = []
    for name, (top_k, top_p, min_p) in DRAWS.items():
        draws = torch.zeros(count, DRAW_WIDTH, dtype=torch.int32)
        draws[:, 0] = draws[:, 1] = torch.arange(count)
        draws[:, 3] = top_k
        numbers = draws.view(torch.float32)
        numbers[:, 2] = 1.0
        numbers[:, 4:6] = torch.tensor((top_p, min_p))
        numbers[:, 6:].uniform_()
        on_device = draws.to(DEVICE)
        time_us = micros(lambda _, draws=on_device: draw(logits, draws, tokens, last))
        rows.append({"rows": count, "vocabulary": config.vocab_size, "asked": name, "ms": round(time_us / 1e3, 3)})
    return rows


def table(rows: list[Row]) -> str:
    head = list(dict.fromkeys(key for row in rows for key in row))
    lines = [head, ["---"] * len(head), *([str(row.get(key, "")) for key in head] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


KERNELS = {f.__name__: f for f in (products, attention, prompts, small, sampling, steps)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=tuple(SHAPES), default="llama2-7b")
    parser.add_argument("--parts", default=",".join(KERNELS))
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--workload", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.busy and args.workload is None:
        parser.error("--busy needs --workload FILE")
    parts: dict[str, Callable[[ModelConfig], list[Row]]] = {}
    if args.busy:
        parts["busy"] = partial(busy, workload=args.workload)
    if args.host:
        parts["host"] = host
    parts = parts or {name: KERNELS[name] for name in args.parts.split(",")}
    if not args.json:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.shape}", flush=True)
    num_failed = 0
    for name, part in parts.items():
        began = time.perf_counter()
        try:
            with torch.inference_mode():
                rows = part(SHAPES[args.shape])
        except Exception as error:  # the other parts are worth having all the same
            num_failed += 1
            rows = [{"failed": f"{type(error).__name__}: {error}"[:300]}]
        gc.collect()  # what a failure still refers to
        torch.cuda.empty_cache()
        if args.json:
            print(json.dumps({"part": name, "shape": args.shape, "rows": rows}), flush=True)
        else:
            print(f"\n{name} ({time.perf_counter() - began:.1f} s)\n\n{table(rows)}", flush=True)
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
