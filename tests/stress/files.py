"""Hostile model files: thousands of mutated GGUF files, Hugging Face folders and MindSpore checkpoints, each loaded and
asked for two tokens.

    PYTHONPATH=tests python tests/stress/files.py [--files 10000] [--seed 0] [--seconds 20]

Always: a file is refused in one line (`ChairliftError`) or served. Another exception, a process that dies, more memory
than a tiny model can need, or more than `--seconds` for one file is a failure, and its number repeats it with
`--only N`. One process loads them all under one limit on memory, so that what loading leaves behind is a failure too.
Prints a table in Markdown; exit code 1 when anything failed.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.numpy import load_file
from tqdm import tqdm

from fakes.ckpt import mindformers_name, write_ckpt
from fakes.small_tokenizer import BOS, EOS, TEMPLATE, trained
from fakes.tiny_model import CONTEXT, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, MLP, write_tiny_model

KINDS = ("gguf", "safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "index", "ckpt", "model.yaml")
GGUF_TYPES = [gguf.GGMLQuantizationType[name] for name in ("F32", "Q8_0", "Q4_0", "F16", "Q5_1", "Q4_1", "Q5_0")]
SPARE_BYTES = 2 * 2**30  # of addresses, beyond what the process has mapped before the first file
HOSTILE: tuple[Any, ...] = (
    0, 1, -1, 2**31 - 1, 2**31, 2**40, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "",
    "\0", "a" * 5000, "../../etc/passwd", "/dev/zero", None, True, [], {}, [[]], {"a": {"a": {}}}, ["x"] * 1000,
    "{{ 1/0 }}",
    "{% for a in range(9) %}{{ a }}{% endfor %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ ''.__class__ }}",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Load mutated model files.")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="most for one file")
    parser.add_argument("--only", type=int, help="one number, in this process, with its traceback")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        originals = Path(folder) / "originals"
        write_originals(originals)
        if options.only is not None:
            print(try_one(originals, Path(folder) / "mutated", options.seed, options.only, shows=True))
            return 0
        outcomes, failures = run(originals, Path(folder), options)
    print("| file | refused | served | failed |\n|---|---:|---:|---:|")
    for kind in KINDS:
        print(f"| {kind} | " + " | ".join(str(outcomes[kind, what]) for what in ("refused", "served", "failed")) + " |")
    for number, what in failures[:20]:
        print(f"\nfile {number}: {what}")
    print(f"\n{options.files} files, {len(failures)} failed")
    return 1 if failures else 0


def run(
    originals: Path, folder: Path, options: argparse.Namespace
) -> tuple[Counter[tuple[str, str]], list[tuple[int, str]]]:
    outcomes: Counter[tuple[str, str]] = Counter()
    failures: list[tuple[int, str]] = []
    worker: Worker | None = None
    for number in tqdm(range(options.files), disable=None):
        worker = worker or Worker(originals, folder / "mutated", options.seed)
        outcome = worker.ask(number, options.seconds)
        if outcome not in ("refused", "served"):
            failures.append((number, outcome))
            worker.kill()
            worker = None
        outcomes[KINDS[number % len(KINDS)], outcome if outcome in ("refused", "served") else "failed"] += 1
    if worker is not None:
        worker.end()
    return outcomes, failures


class Worker:
    """A process that loads files one after the other, and may die of one."""

    def __init__(self, originals: Path, place: Path, seed: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=work, args=(theirs, originals, place, seed), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, number: int, limit_s: float) -> str:
        try:
            self._pipe.send(number)
            if not self._pipe.poll(limit_s):
                return f"took more than {limit_s:.0f} s"
            return str(self._pipe.recv())
        except (EOFError, ConnectionError):
            self._process.join()
            return f"the process died ({self._process.exitcode})"

    def end(self) -> None:
        self._pipe.close()
        self._process.join()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def work(pipe: Connection, originals: Path, place: Path, seed: int) -> None:
    import chairlift  # noqa: F401  (what it maps is not what a file costs)

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + SPARE_BYTES, mapped + SPARE_BYTES))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries write there too
    with suppress(EOFError):  # no more questions
        while True:
            pipe.send(try_one(originals, place, seed, pipe.recv()))


def try_one(originals: Path, place: Path, seed: int, number: int, *, shows: bool = False) -> str:
    from chairlift import LLM, SamplingParams
    from chairlift.core.errors import ChairliftError

    shutil.rmtree(place, ignore_errors=True)
    model = mutate(originals, place, random.Random(f"{seed}.{number}"), KINDS[number % len(KINDS)])
    try:
        llm = LLM(str(model), max_model_len=64, num_blocks=16, max_running=2, threads=1, device="cpu")
        params = SamplingParams(temperature=0.0, max_tokens=2)
        prompts = [[5, 6, 7], llm.chat_prompt([{"role": "user", "content": "hello"}])]
        llm.generate(prompts, params, use_tqdm=False)
    except ChairliftError as error:
        if shows:
            print(error)
        return "refused" if "\n" not in str(error) else f"a message of several lines: {error!r}"
    except BaseException as error:
        if shows:
            traceback.print_exc()
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "served"


def mutate(originals: Path, place: Path, rng: random.Random, kind: str) -> Path:
    """A copy of an original with one file changed; what to serve."""
    if kind == "gguf":
        place.mkdir()
        data = (originals / "model.gguf").read_bytes()
        (place / "model.gguf").write_bytes(changed_bytes(data, rng, header=len(data) // 8))
        return place / "model.gguf"
    shutil.copytree(
        originals / {"index": "split", "ckpt": "mindspore", "model.yaml": "mindspore"}.get(kind, "whole"), place
    )
    if kind == "ckpt":
        path = place / "model.ckpt"
        path.write_bytes(changed_bytes(path.read_bytes(), rng, header=2000))
        return place
    if kind == "safetensors":
        path = place / "model.safetensors"
        path.write_bytes(changed_tensors(path.read_bytes(), rng))
        return place
    path = place / ("model.safetensors.index.json" if kind == "index" else kind)
    if rng.random() < 0.25:
        path.write_bytes(changed_bytes(path.read_bytes(), rng, header=2**31))
    else:
        path.write_text(json.dumps(changed_json(json.loads(path.read_text()), rng)))
    return place


def changed_bytes(data: bytes, rng: random.Random, header: int) -> bytes:
    """Some bytes flipped, lengths overwritten, parts cut out or doubled; mostly where the header is."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 40))):
        at = rng.randrange(min(header, len(found))) if rng.random() < 0.9 else rng.randrange(len(found))
        how = rng.randrange(5)
        if how == 0:
            found[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            found[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1, len(data))))
        elif how == 2:
            found[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 8, 9, 13, 2**31, 2**32 - 1)))
        elif how == 3:
            del found[at : at + rng.choice((1, 8, 100, 10**6))]
        else:
            found[at:at] = found[at : at + rng.choice((1, 8, 100))]
        if not found:
            return b""
    return bytes(found)


def changed_tensors(data: bytes, rng: random.Random) -> bytes:
    (length,) = struct.unpack_from("<Q", data)
    if rng.random() < 0.4:
        return changed_bytes(data, rng, header=8 + length)
    header = json.dumps(changed_json(json.loads(data[8 : 8 + length]), rng)).encode()
    said = len(header) if rng.random() < 0.9 else rng.choice((0, 2**40, 2**63))
    return struct.pack("<Q", said) + header + data[8 + length :]


def changed_json(value: Any, rng: random.Random) -> Any:
    """One to three places of the document hold something hostile, are gone, or have another's value."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(places_of(value))
        if not places:
            return deepcopy(rng.choice(HOSTILE))
        inside, key = rng.choice(places)
        how = rng.random()
        if how < 0.75:
            inside[key] = deepcopy(rng.choice(HOSTILE))
        elif how < 0.85:
            del inside[key]
        else:
            other, name = rng.choice(places)
            inside[key] = deepcopy(other[name])
    return value


def places_of(value: Any, depth: int = 0) -> Any:
    """Few of a long list, so that short ones are met as well."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys if len(keys) <= 40 else keys[:20] + keys[-20:]:
        yield value, key
        if depth < 8:
            yield from places_of(value[key], depth + 1)


def write_originals(folder: Path) -> None:
    whole = write_tiny_model(folder / "whole")
    split = folder / "split"
    shutil.copytree(whole, split)
    (split / "model.safetensors").rename(split / "part-1.safetensors")
    tensors = load_file(whole / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "part-1.safetensors")}
    (split / "model.safetensors.index.json").write_text(json.dumps(index))
    write_gguf(folder / "model.gguf", tensors)
    write_mindspore(whole, folder / "mindspore", tensors)


def write_mindspore(whole: Path, folder: Path, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    small_first = sorted(tensors, key=lambda name: tensors[name].size)  # so that many lengths lie at the beginning
    write_ckpt(folder / "model.ckpt", {mindformers_name(name): torch.from_numpy(tensors[name]) for name in small_first})
    section = {
        "type": "LlamaConfig", "hidden_size": HIDDEN, "num_layers": LAYERS, "num_heads": HEADS, "n_kv_heads": KV_HEADS,
        "intermediate_size": MLP, "vocab_size": len(tensors["lm_head.weight"]), "seq_length": CONTEXT,
        "param_init_type": "float32", "theta": 10000.0, "extend_method": "None", "scaling_factor": 1.0,
    }  # fmt: skip
    (folder / "model.yaml").write_text(json.dumps({"model": {"model_config": section}}))


def write_gguf(path: Path, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    core = trained()
    vocabulary = sorted(core.get_vocab().items(), key=lambda item: item[1])
    writer = gguf.GGUFWriter(path, "llama")
    for name, number in (
        ("context_length", CONTEXT), ("embedding_length", HIDDEN), ("block_count", LAYERS),
        ("feed_forward_length", MLP),
        ("attention.head_count", HEADS), ("attention.head_count_kv", KV_HEADS), ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM), ("rope.dimension_count", HEAD_DIM),
    ):  # fmt: skip
        writer.add_uint32(f"llama.{name}", number)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in (BOS, EOS) else 1 for token, _ in vocabulary])
    merges = json.loads(core.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(core.token_to_id(BOS))
    writer.add_eos_token_id(core.token_to_id(EOS))
    writer.add_chat_template(TEMPLATE)
    for i, (name, data) in enumerate(tensors.items()):
        kind = GGUF_TYPES[i % len(GGUF_TYPES)] if data.ndim > 1 else gguf.GGMLQuantizationType.F32
        if kind is gguf.GGMLQuantizationType.F32:
            writer.add_tensor(_gguf_name(name), data)
        else:
            writer.add_tensor(_gguf_name(name), gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    for ours, theirs in (
        ("model.layers.", "blk."), ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"),
        ("lm_head", "output"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"), ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
    ):  # fmt: skip
        name = name.replace(ours, theirs)
    return name


if __name__ == "__main__":
    sys.exit(main())
