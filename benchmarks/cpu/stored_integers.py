"""Integers of safetensors on a CPU beside the same weights as blocks of a GGUF file: speed in turns, and memory.

    python benchmarks/cpu/stored_integers.py FOLDER [--rounds 15] [--group 128]

Random codes, scales and zeros in the shape of Qwen2.5-0.5B with 49,152 tokens, written to FOLDER as AWQ, GPTQ, W4A16,
W8A8 and as Q4_1. Tokens a second are of one stream and of eight, in turns, the best of each. Memory is what a process
has more after loading in bfloat16, beside the bytes of the file.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from machine import describe
from make_models import Metadata, metadata_of
from numpy.typing import NDArray
from safetensors.torch import save_file

from chairlift import LLM, SamplingParams
from chairlift.models.files.gguf.header import read_header
from chairlift.models.source import embedded_path
from chairlift.text.gguf_tokenizer import gguf_tokenizer

Codes = NDArray[np.int32]
Halves = NDArray[np.float16]
VOCAB, HIDDEN, MLP, LAYERS, HEADS, KV_HEADS, HEAD = 49_152, 896, 4864, 24, 14, 2, 64
SHAPES = {
    "self_attn.q_proj": (HEADS * HEAD, HIDDEN), "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
    "mlp.gate_proj": (MLP, HIDDEN), "mlp.up_proj": (MLP, HIDDEN), "mlp.down_proj": (HIDDEN, MLP),
}  # fmt: skip
GGUF_NAMES = dict(
    zip(SHAPES, ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), strict=True)
)
BLOCK, TOKENS, AWQ_ORDER = 32, 16, [0, 2, 4, 6, 1, 3, 5, 7]


def matrices(group: int) -> Iterator[tuple[int, str, Codes, Halves, Codes]]:
    """Layer, name, codes [out, in], scales and zeros [out, groups]."""
    rng = np.random.default_rng(0)
    for layer in range(LAYERS):
        for name, (rows, columns) in SHAPES.items():
            groups = rows, columns // group
            scales = (rng.uniform(0.5, 1.0, groups) * 0.2 / columns**0.5).astype(np.float16)
            codes, zeros = rng.integers(0, 16, (rows, columns), np.int32), rng.integers(7, 10, groups, np.int32)
            yield layer, name, codes, scales, zeros


def words(codes: Codes, bits: int = 4) -> torch.Tensor:
    """[rows, n] -> int32 [rows, n * bits / 32], the first in the lowest bits, across words."""
    digits = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    return torch.from_numpy(np.packbits(digits.reshape(len(codes), -1), axis=1, bitorder="little").view(np.int32))


def awq(codes: Codes, scales: Halves, zeros: Codes) -> dict[str, torch.Tensor]:
    def mixed(each: Codes) -> torch.Tensor:
        return words(each.T.reshape(each.shape[1], -1, 8)[..., AWQ_ORDER].reshape(each.shape[1], -1))

    return {"qweight": mixed(codes), "qzeros": mixed(zeros), "scales": torch.from_numpy(scales.T.copy())}


def gptq(codes: Codes, scales: Halves, zeros: Codes, bits: int = 4) -> dict[str, torch.Tensor]:
    order = torch.arange(codes.shape[1], dtype=torch.int32) // (codes.shape[1] // scales.shape[1])
    tensors = {"qweight": words(codes, bits).T.contiguous(), "qzeros": words(zeros.T - 1, bits), "g_idx": order}
    return tensors | {"scales": torch.from_numpy(scales.T.copy())}


def w4a16(codes: Codes, scales: Halves, zeros: Codes, bits: int = 4) -> dict[str, torch.Tensor]:
    """Without zeros: they are in the middle."""
    shape = torch.tensor(codes.shape)
    return {
        "weight_packed": words(codes, bits),
        "weight_scale": torch.from_numpy(scales).bfloat16(),
        "weight_shape": shape,
    }


def w8a8(codes: Codes, scales: Halves, zeros: Codes) -> dict[str, torch.Tensor]:
    numbers = torch.from_numpy(codes * 17 - 128).to(torch.int8)
    return {"weight": numbers, "weight_scale": torch.from_numpy(scales[:, :1]).bfloat16() / 16}


def of_ct(group: int, bits: int, form: str) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group" if bits == 4 else "channel"}
    weights |= {"group_size": group} if bits == 4 else {}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "format": form}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


def configs(group: int) -> dict[str, tuple[Callable[..., dict[str, torch.Tensor]], dict[str, Any]]]:
    of_awq = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    of_gptq = {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": False, "sym": False}
    return {
        "awq": (awq, of_awq), "gptq": (gptq, of_gptq), "w4a16": (w4a16, of_ct(group, 4, "pack-quantized")),
        "w8a8": (w8a8, of_ct(group, 8, "int-quantized")),
    }  # fmt: skip


def write_folder(folder: Path, pack: Callable[..., dict[str, torch.Tensor]], said: dict[str, Any], group: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"model.embed_tokens.weight": embedding().bfloat16(), "model.norm.weight": torch.ones(HIDDEN)}
    for layer, name, *numbers in matrices(group):
        before = f"model.layers.{layer}"
        tensors |= {f"{before}.{name}.{role}": each for role, each in pack(*numbers).items()}
        if name[-6:] in ("q_proj", "k_proj", "v_proj"):
            tensors[f"{before}.{name}.bias"] = torch.zeros(SHAPES[name][0])
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{before}.{norm}.weight"] = torch.ones(HIDDEN)
    save_file({name: each.contiguous() for name, each in tensors.items()}, folder / "model.safetensors")
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN, "intermediate_size": MLP,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCAB, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 0,
        "eos_token_id": 2, "quantization_config": said,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    gguf_tokenizer(read_header(embedded_path()).metadata)._core.save(str(folder / "tokenizer.json"))


def embedding() -> torch.Tensor:
    return torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(0)) * 0.02


def write_gguf(path: Path, group: int) -> None:
    writer, own = GGUFWriter(path, "qwen2"), metadata_of(GGUFReader(embedded_path()))
    for name, (value, types) in of_qwen2(own).items():
        writer.add_key_value(name, value, types[0], types[-1] if len(types) > 1 else None)
    writer.add_tensor("token_embd.weight", embedding().numpy().astype(np.float16))
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for layer, name, codes, scales, zeros in matrices(group):
        kind = GGMLQuantizationType.Q4_1
        writer.add_tensor(f"blk.{layer}.{GGUF_NAMES[name]}.weight", q4_1(codes, scales, zeros), raw_dtype=kind)
        if name[-6:] in ("q_proj", "k_proj", "v_proj"):
            writer.add_tensor(f"blk.{layer}.{GGUF_NAMES[name]}.bias", np.zeros(SHAPES[name][0], np.float32))
        if name == "mlp.down_proj":
            writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.ones(HIDDEN, np.float32))
            writer.add_tensor(f"blk.{layer}.ffn_norm.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def of_qwen2(own: Metadata) -> Metadata:
    of_count, of_float = own["llama.block_count"][1], own["llama.attention.layer_norm_rms_epsilon"][1]
    counts = {
        "context_length": 2048, "embedding_length": HIDDEN, "block_count": LAYERS, "feed_forward_length": MLP,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
    }  # fmt: skip
    kept = {name: each for name, each in own.items() if name.startswith("tokenizer.")}
    kept |= {f"qwen2.{name}": (value, of_count) for name, value in counts.items()}
    floats = {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6}
    return kept | {f"qwen2.{name}": (value, of_float) for name, value in floats.items()}


def q4_1(codes: Codes, scales: Halves, zeros: Codes) -> NDArray[np.uint8]:
    """Blocks of 32: scale, minimum, column i beside column 16 + i."""
    (rows, columns), each = codes.shape, codes.shape[1] // BLOCK // scales.shape[1]
    halves = codes.reshape(rows, -1, 2, BLOCK // 2).astype(np.uint8)
    mins = (-scales.astype(np.float32) * zeros).astype(np.float16)
    both = np.stack([scales, mins], axis=2).repeat(each, axis=1).view(np.uint8).reshape(rows, columns // BLOCK, 4)
    return np.concatenate([both, halves[:, :, 0] | halves[:, :, 1] << 4], axis=2).reshape(rows, -1)


def speeds(paths: dict[str, Path], rounds: int) -> None:
    llms = {name: LLM(str(path), max_model_len=1024, kv_memory="64MiB") for name, path in paths.items()}
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    for streams in (1, 8):
        best = dict.fromkeys(paths, 0.0)
        for turn in range(rounds):
            for name, llm in llms.items():
                prompts = [f"{turn} tell me about {index}" for index in range(streams)]
                began = time.perf_counter()
                llm.generate(prompts, params, use_tqdm=False)
                best[name] = max(best[name], streams * TOKENS / (time.perf_counter() - began))
        for name, each in best.items():
            print(f"| {name} | {streams} | {each:.1f} | {each / best['q4_1']:.2f} |", flush=True)


MEMORY = """
import sys, torch
from pathlib import Path
from chairlift.config.settings import Settings
from chairlift.models.shards import Rank
from chairlift.models.source import load_model_config, locate
from chairlift.runner.memory.malloc import return_freed_memory
from chairlift.runner.start.choices import choose, load_model
settings = Settings(model=sys.argv[1], threads=2, dtype="bfloat16", quantize="stored")
source = locate(sys.argv[1])
config = load_model_config(source, settings)
chosen = choose(settings, config, Rank())
torch.zeros(1000, 1000) @ torch.zeros(1000, 1000)
def own() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(status[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))
return_freed_memory()
before = own()
model = load_model(settings, source, config, Rank(), chosen)
return_freed_memory()
print(own() - before)
"""


def memory(name: str, path: Path) -> None:
    file = path if path.is_file() else path / "model.safetensors"
    found = int(subprocess.run([sys.executable, "-c", MEMORY, path], check=True, capture_output=True, text=True).stdout)
    size = file.stat().st_size
    print(f"| {name} | {size / 1e6:.1f} | {found / 1e6:.1f} | {found / size:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--group", type=int, default=128)
    args = parser.parse_args()
    paths = {"q4_1": args.folder / f"q4_1-{args.group}.gguf"}
    if not paths["q4_1"].exists():
        args.folder.mkdir(parents=True, exist_ok=True)
        write_gguf(paths["q4_1"], args.group)
    for name, (pack, said) in configs(args.group).items():
        paths[name] = args.folder / f"{name}-{args.group}"
        if not paths[name].exists():
            write_folder(paths[name], pack, said, args.group)
    print(f"{', '.join(describe().values())}\n\n| file | MB | memory, MB | ratio |\n|---|---|---|---|")
    for name, path in paths.items():
        memory(name, path)
    print("\n| file | streams | tokens/s | of Q4_1's |\n|---|---|---|---|")
    speeds(paths, args.rounds)


if __name__ == "__main__":
    main()
