"""Quantised files on a GPU: memory after loading beside the file's bytes, and how fast one stream and 64 decode.

    python benchmarks/gpu/stored.py FOLDER [--model llama3-8b] [--format awq ...] [--exact]

Weights are random (`make_quantised.py`), written to FOLDER packed and removed again. Streams take 128 tokens; a step is
the middle of 128 that are captured. The row of bf16 has the same shape without a file. Prints a table in Markdown.
"""

import argparse
import gc
import json
import shutil
import time
from pathlib import Path

import torch
from engine import DEVICE, MAX_LEN, STREAM, GpuEngine, step_ms
from make_models import write_model
from make_quantised import FORMATS, write

from chairlift.config.settings import Settings
from chairlift.core.policies.rankings import Fcfs
from chairlift.models.files.hf import load_hf
from chairlift.models.shards import Rank
from chairlift.models.source import Source
from chairlift.runner.model import Decoder
from chairlift.runner.start.choices import choose, load_model

_STREAMS = (1, 8, 32, 64)
_KV_TOKENS = _STREAMS[-1] * (sum(STREAM) + 16)


def speeds(gpu: GpuEngine) -> list[str]:
    """Milliseconds a step and tokens a second."""
    cells = []
    for count in _STREAMS:
        step_ms(gpu.engine(Fcfs(), [STREAM] * count))  # captures
        took = step_ms(gpu.engine(Fcfs(), [STREAM] * count))
        cells += [f"{took:.2f}", f"{1000 * count / took:,.0f}"]
    return cells


def loaded(folder: Path, exact: bool) -> tuple[Decoder, str, int, float]:
    """A model, what it keeps as what, its memory and the seconds that loading took."""
    config, source = load_hf(folder), Source("folder", folder, folder.name)
    settings = Settings(device="cuda", exact=exact, max_model_len=min(MAX_LEN, config.max_model_len))
    chosen = choose(settings, config, Rank())
    torch.cuda.synchronize()
    before, began = torch.cuda.memory_allocated(), time.perf_counter()
    model = load_model(settings, source, config, Rank(), chosen)
    torch.cuda.synchronize()
    kept = "bf16" if chosen.quantize == "none" or config.packed is None else config.packed.type_name
    return model, kept, torch.cuda.memory_allocated() - before, time.perf_counter() - began


def row(name: str, cells: list[str]) -> None:
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="llama3-8b")
    parser.add_argument(
        "--format", nargs="*", default=["fp8-blocks", "fp8-rows", "gptq", "awq", "nvfp4"], choices=FORMATS
    )
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--no-bf16", action="store_true")
    args = parser.parse_args()
    config = json.loads((write_model(args.folder, args.model) / "config.json").read_text())
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.model}{', --exact' * args.exact}\n")
    row(
        "file",
        ["kept as", "file, GB", "memory, GB", "ratio", "load, s"]
        + [cell for count in _STREAMS for cell in (f"step of {count}, ms", "tokens/s")],
    )
    print("|" + "---|" * (6 + 2 * len(_STREAMS)))
    if not args.no_bf16:
        gpu = GpuEngine(load_hf(args.folder / args.model), _STREAMS[-1], 4096, args.exact, num_tokens=_KV_TOKENS)
        row("none, bf16", ["bf16", "", "", "", "", *speeds(gpu)])
        del gpu
    for form in args.format:
        gc.collect()
        torch.cuda.empty_cache()
        size = write(args.folder, config, form)
        model, kept, memory, took = loaded(args.folder / form, args.exact)
        shutil.rmtree(args.folder / form)
        gpu = GpuEngine(model.config, _STREAMS[-1], 4096, args.exact, model=model, num_tokens=_KV_TOKENS)
        sizes = [f"{size / 1e9:.2f}", f"{memory / 1e9:.2f}", f"{memory / size:.3f}", f"{took:.1f}"]
        row(form, [kept, *sizes, *speeds(gpu)])
        del gpu, model
    assert DEVICE.type == "cuda"


if __name__ == "__main__":
    main()
