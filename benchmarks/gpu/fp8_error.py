"""What fp8 costs and saves on a GPU: how far logits move from bfloat16's, and how many tokens come per second.

    python benchmarks/gpu/fp8_error.py [--no-speed]

Two models: random weights of the Llama-2-7B shape, and the embedded SmolLM2 reading this project's README where it is
installed. Every choice computes the same texts: a stretch at once as a prompt, the rest token by token as decodes. The
row of float32 shows how far bfloat16 itself is off. Then 256 requests of 128 + 256 tokens at once and one alone, on the
first model. Prints tables in Markdown.
"""

import argparse
import random
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.clock import WallClock
from chairlift.models.files.gguf.header import read_header
from chairlift.models.source import load_model_config, locate
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.products.fp8 import Fp8Weight
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block
from chairlift.runner.model import Decoder
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.source import TensorSource
from chairlift.text.find import load_tokenizer

LLAMA_2_7B = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=4096, num_layers=32, num_heads=32, num_kv_heads=32, head_dim=128,
    intermediate_size=11008, vocab_size=32000, max_model_len=4096, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
BLOCK_SIZE = 16
FP8 = torch.float8_e4m3fn
PROMPT, LENGTH, TEXTS = 192, 256, 8  # tokens at once, tokens in all, texts
REQUESTS, INPUT, OUTPUT = 256, 128, 256


class DrawnTensors:
    """Random weights drawn on the device: the same for every choice, in no time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def names(self) -> Collection[str]:
        return ()

    def file_of(self, name: str) -> str:
        return "drawn weights"

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape, device=self._device)
        rng = torch.Generator(self._device).manual_seed(zlib.crc32(name.encode()))
        return torch.empty(shape, dtype=torch.bfloat16, device=self._device).normal_(0.0, 0.02, generator=rng)


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    dtype: torch.dtype
    kv_dtype: torch.dtype
    has_fp8_weights: bool = False


BASE = Choice("bfloat16", torch.bfloat16, torch.bfloat16)
OTHERS = (
    Choice("float32", torch.float32, torch.float32),
    Choice("--kv-dtype fp8", torch.bfloat16, FP8),
    Choice("--quantize fp8", torch.bfloat16, torch.bfloat16, True),
    Choice("both", torch.bfloat16, FP8, True),
)


@dataclass(frozen=True, slots=True)
class Distance:
    """Between the logits of a choice and the base's."""

    most: float
    mean: float
    same_top: float  # share of positions with the same argmax
    divergence: float  # mean of KL(base || choice), in nats


def distance(logits: Tensor, base: Tensor) -> Distance:
    """Both [positions, vocabulary]."""
    apart = (logits - base).abs()
    own, other = base.log_softmax(dim=-1), logits.log_softmax(dim=-1)
    same = (logits.argmax(dim=-1) == base.argmax(dim=-1)).float().mean()
    divergence = (own.exp() * (own - other)).sum(dim=-1).mean()
    return Distance(float(apart.max()), float(apart.mean()), float(same), float(divergence))


def model_of(choice: Choice, config: ModelConfig, source: TensorSource, device: torch.device) -> Decoder:
    weight_format = WeightFormat(layers=Fp8Weight) if choice.has_fp8_weights else WeightFormat()
    return build_model(config, CudaOps(), source, choice.dtype, device, config.max_model_len, weight_format)


@torch.inference_mode()
def logits_of(model: Decoder, choice: Choice, texts: Tensor, num_prompt: int, has_tiles: bool = True) -> Tensor:
    """texts [N, L] -> float32 [N * L, vocabulary]: what is predicted after every token."""
    return _compute(model, choice, texts, num_prompt, has_tiles)[0]


def _compute(model: Decoder, choice: Choice, texts: Tensor, num_prompt: int, has_tiles: bool) -> tuple[Tensor, KvCache]:
    count, length = texts.shape
    width = -(-length // BLOCK_SIZE)
    kv = KvCache(model.config, count * width, BLOCK_SIZE, choice.kv_dtype, texts.device)
    tables = torch.arange(count * width, dtype=torch.int32, device=texts.device).view(count, width)
    spans = [(0, num_prompt), *((position, 1) for position in range(num_prompt, length))]
    has_tiles &= choice.dtype.itemsize == 2  # in float32 they need more shared memory than there is
    has_groups = any(layer.attention.has_groups for layer in model.config.layers)
    batches = (_batch(texts, tables, start, n, has_tiles and n > 1, has_groups) for start, n in spans)
    pieces = [model.logits(model.hidden(batch, kv)).view(count, -1, model.config.vocab_size) for batch in batches]
    return torch.cat(pieces, dim=1).flatten(0, 1), kv


@torch.inference_mode()
def ranges(model: Decoder, texts: Tensor, num_prompt: int, has_tiles: bool = True) -> dict[str, tuple[float, float]]:
    """Of keys and of values: the largest, and the share that is too small for all three bits of fp8's mantissa."""
    _, kv = _compute(model, BASE, texts, num_prompt, has_tiles)
    # The cache has no more places than the texts have tokens, but for the last block of each.
    keys, values = zip(*kv.state, strict=True)
    sizes = {"keys": torch.cat(keys).abs(), "values": torch.cat(values).abs()}
    return {name: (float(s.max()), float(((s > 0) & (s < 2**-6)).float().mean())) for name, s in sizes.items()}


def _batch(texts: Tensor, tables: Tensor, start: int, n: int, is_tiled: bool, has_groups: bool) -> CudaBatch:
    """A step that computes tokens start : start + n of every text."""
    count, device = len(texts), texts.device
    positions = torch.arange(start, start + n, device=device).repeat(count)
    owners = torch.arange(count, device=device).repeat_interleave(n)
    tiles = [(t * n + i, min(QUERIES, n - i), start + i, t) for t in range(count) for i in range(0, n, QUERIES)]
    return CudaBatch(
        tokens=texts[:, start : start + n].flatten(),
        positions=positions.int(),
        slots=(tables[owners, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE).int(),
        starts=owners[:0],
        contexts=owners[:0],
        tables=tables,
        num_decodes=0,
        max_context=start + n,
        logit_rows=None,
        table_rows=owners.int(),
        tiling=choose_tiling(count * n, start + n, has_groups),
        tiles=torch.tensor(tiles, dtype=torch.int32, device=device) if is_tiled else None,
        short_positions=torch.full_like(positions, -1).int() if is_tiled else positions.int(),
    )


def distances(
    config: ModelConfig, source: TensorSource, texts: Tensor, num_prompt: int, has_tiles: bool = True
) -> Iterator[tuple[str, Distance]]:
    """has_tiles: prompts are answered in tiles of queries, as long ones are, and not row by row."""
    base = logits_of(model_of(BASE, config, source, texts.device), BASE, texts, num_prompt, has_tiles)
    for choice in OTHERS:
        logits = logits_of(model_of(choice, config, source, texts.device), choice, texts, num_prompt, has_tiles)
        yield choice.name, distance(logits, base)


def speed(model: Decoder, choice: Choice, device: torch.device) -> tuple[float, float]:
    """Tokens per second of all requests at once, and of one alone."""
    num_blocks = REQUESTS * -(-(INPUT + OUTPUT) // BLOCK_SIZE)
    kv = KvCache(model.config, num_blocks, BLOCK_SIZE, choice.kv_dtype, device)
    limits = Limits(
        vocab_size=model.config.vocab_size, max_model_len=model.config.max_model_len, block_size=BLOCK_SIZE,
        num_blocks=num_blocks, max_running=REQUESTS, max_step_tokens=4096,
    )  # fmt: skip
    runner = CudaRunner(model, kv, device, limits)
    _tokens_per_s(runner, limits, REQUESTS, INPUT + OUTPUT - 16, 16)  # captures graphs
    together = _tokens_per_s(runner, limits, REQUESTS, INPUT, OUTPUT)
    _tokens_per_s(runner, limits, 1, INPUT, OUTPUT)
    return together, _tokens_per_s(runner, limits, 1, INPUT, OUTPUT)


def _tokens_per_s(runner: CudaRunner, limits: Limits, count: int, num_input: int, num_output: int) -> float:
    engine, rng = Engine(Scheduler(limits, Fcfs(), has_prefix_index=False), runner, WallClock()), random.Random(0)
    params = SamplingParams(temperature=0.0)
    for id in range(count):
        prompt = tuple(rng.randrange(limits.vocab_size) for _ in range(num_input))
        engine.add((Request(id=RequestId(id), prompt=prompt, params=params, max_output=num_output, seed=0),))
    started, num_tokens = time.perf_counter(), 0
    while engine.has_work:
        num_tokens += sum(isinstance(event, Token) for event in engine.step())
    assert num_tokens == count * num_output
    return num_tokens / (time.perf_counter() - started)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def show_distances(name: str, config: ModelConfig, source: TensorSource, texts: Tensor, num_prompt: int) -> str:
    rows = (
        (choice, f"{d.most:.3f}", f"{d.mean:.4f}", f"{d.same_top:.1%}", f"{d.divergence:.5f}")
        for choice, d in distances(config, source, texts, num_prompt)
    )
    head = (name, "most", "mean |logit difference|", "same likeliest token", "KL, nats")
    return table(head, rows)


def show_speed(config: ModelConfig, device: torch.device) -> str:
    rows, source = [], DrawnTensors(device)
    kv_bytes = {dtype: kv_bytes_per_block(config, 1, dtype) // 1024 for dtype in (torch.bfloat16, FP8)}
    for choice in (BASE, *OTHERS[1:]):
        before = torch.cuda.memory_allocated(device)
        model = model_of(choice, config, source, device)
        weights = (torch.cuda.memory_allocated(device) - before) / 2**30
        together, alone = speed(model, choice, device)
        rows.append((choice.name, f"{weights:.1f}", f"{kv_bytes[choice.kv_dtype]}", f"{together:.0f}", f"{alone:.0f}"))
        del model
        torch.cuda.empty_cache()
    head = ("", "weights, GiB", "KV per token, KiB", f"tokens/s, {REQUESTS} x ({INPUT} + {OUTPUT})", "one alone")
    return table(head, rows)


def embedded(device: torch.device) -> tuple[ModelConfig, TensorSource, Tensor] | None:
    """The embedded model and texts for it, where it is installed."""
    try:
        place = locate(None)
    except InvalidConfig:
        return None
    config = load_model_config(place)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    ids = load_tokenizer(place).encode(readme)[: TEXTS * LENGTH]
    texts = torch.tensor(ids[: len(ids) // LENGTH * LENGTH], device=device).view(-1, LENGTH)
    return config, GgufTensors(read_header(place.path), num_threads=8), texts


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--no-speed", action="store_true")
    args = arguments.parse_args()
    device, began = torch.device("cuda"), time.perf_counter()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; against bfloat16:\n", flush=True)
    rng = torch.Generator().manual_seed(0)
    texts = torch.randint(LLAMA_2_7B.vocab_size, (TEXTS, LENGTH), generator=rng).to(device)
    name = "Llama-2-7B shape, random weights"
    print(show_distances(name, LLAMA_2_7B, DrawnTensors(device), texts, PROMPT), flush=True)
    if (found := embedded(device)) is not None:
        config, source, texts = found
        print(show_distances("SmolLM2-135M-Instruct, README", config, source, texts, PROMPT), flush=True)
        for name, (most, share) in ranges(model_of(BASE, config, source, device), texts, PROMPT).items():
            print(f"its {name}: up to {most:.0f} (fp8 has 448), {share:.1%} below 2**-6", flush=True)
        print()
    if not args.no_speed:
        torch.cuda.empty_cache()
        print(show_speed(LLAMA_2_7B, device), flush=True)
    print(f"in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
