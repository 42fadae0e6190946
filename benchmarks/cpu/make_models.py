"""Model files for the tables of CPU engines, all made from the embedded model and a random generator.

python benchmarks/cpu/make_models.py FOLDER [--llama-quantize PROGRAM]

smollm2-q4_1.gguf     the embedded model, as it is
smollm2-q8_0.gguf     the same, its matrices requantised
smollm2/              the same as a Hugging Face folder, dequantised to float32
tinyllama-q8_0.gguf   random weights in the shape of TinyLlama 1.1B, with the first 32,000 tokens of the same tokenizer
tinyllama-q4_k_m.gguf made of that by llama.cpp's own quantiser, when its program is named
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray
from safetensors.numpy import save_file

from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.source import embedded_path
from chairlift.models.spec import ModelConfig
from chairlift.text.gguf_tokenizer import gguf_tokenizer

Matrix = NDArray[np.float32]
Q8_0, F32 = GGMLQuantizationType.Q8_0, GGMLQuantizationType.F32
FILE_TYPE_Q8_0 = 7
VOCAB, HIDDEN, MLP, LAYERS, HEADS, KV_HEADS = 32_000, 2048, 5632, 22, 32, 4  # TinyLlama 1.1B
SHAPE = {
    "context_length": 2048, "embedding_length": HIDDEN, "block_count": LAYERS, "feed_forward_length": MLP,
    "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "vocab_size": VOCAB,
    "rope.dimension_count": HIDDEN // HEADS,
}  # fmt: skip
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
TOP_NAMES = {"token_embd": "embed_tokens", "output_norm": "norm"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the model files of the CPU tables.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--llama-quantize", help="llama.cpp's program of that name, for the K-quantised file")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    embedded = GGUFReader(embedded_path())
    shutil.copy(embedded_path(), args.folder / "smollm2-q4_1.gguf")
    write_gguf(args.folder / "smollm2-q8_0.gguf", metadata_of(embedded), tensors_of(embedded))
    write_folder(args.folder / "smollm2", embedded)
    source = args.folder / "tinyllama-q8_0.gguf"
    write_gguf(source, tinyllama_metadata(metadata_of(embedded)), random_tensors())
    if args.llama_quantize:
        target = args.folder / "tinyllama-q4_k_m.gguf"
        subprocess.run([args.llama_quantize, "--allow-requantize", source, target, "Q4_K_M"], check=True)


Metadata = dict[str, tuple[Any, list[Any]]]  # value, and the types that the format gives it


def metadata_of(reader: GGUFReader) -> Metadata:
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    return {name: (field.contents(), field.types) for name, field in fields.items()}


def tensors_of(reader: GGUFReader) -> Iterator[tuple[str, Matrix]]:
    for tensor in reader.tensors:
        yield tensor.name, dequantize(tensor.data, tensor.tensor_type)


def write_gguf(path: Path, metadata: Metadata, tensors: Iterator[tuple[str, Matrix]]) -> None:
    writer = GGUFWriter(path, "llama")
    for name, (value, types) in metadata.items():
        if name == "general.file_type":
            value = FILE_TYPE_Q8_0
        if name != "general.architecture":
            writer.add_key_value(name, value, types[0], types[-1] if len(types) > 1 else None)
    for name, values in tensors:
        kind = F32 if values.ndim == 1 else Q8_0
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tinyllama_metadata(metadata: Metadata) -> Metadata:
    """The shape replaced, and the tokenizer cut: its tokens are in the order of the merges that make them."""
    changed = metadata | {
        f"llama.{key}": (value, metadata["llama.block_count"][1]) for key, value in SHAPE.items()
    }  # fmt: skip
    tokens, token_types = metadata["tokenizer.ggml.tokens"]
    kept = set(tokens[:VOCAB])
    merges, merge_types = metadata["tokenizer.ggml.merges"]
    kinds, kind_types = metadata["tokenizer.ggml.token_type"]
    return changed | {
        "general.name": ("random weights in the shape of TinyLlama 1.1B", metadata["general.name"][1]),
        "tokenizer.ggml.tokens": (tokens[:VOCAB], token_types),
        "tokenizer.ggml.token_type": (kinds[:VOCAB], kind_types),
        "tokenizer.ggml.merges": ([merge for merge in merges if merge.replace(" ", "") in kept], merge_types),
    }


def random_tensors() -> Iterator[tuple[str, Matrix]]:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Matrix:
        return rng.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)

    ones, kv = np.ones(HIDDEN, np.float32), HIDDEN // HEADS * KV_HEADS
    yield "token_embd.weight", matrix(VOCAB, HIDDEN)
    for layer in range(LAYERS):
        sizes = {
            "attn_q": (HIDDEN, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN), "attn_output": (HIDDEN, HIDDEN),
            "ffn_gate": (MLP, HIDDEN), "ffn_up": (MLP, HIDDEN), "ffn_down": (HIDDEN, MLP),
        }  # fmt: skip
        yield from ((f"blk.{layer}.{name}.weight", ones) for name in ("attn_norm", "ffn_norm"))
        yield from ((f"blk.{layer}.{name}.weight", matrix(*size)) for name, size in sizes.items())
    yield "output_norm.weight", ones
    yield "output.weight", matrix(VOCAB, HIDDEN)


def write_folder(folder: Path, reader: GGUFReader) -> None:
    folder.mkdir(exist_ok=True)
    header = read_header(embedded_path())
    config = load_gguf(header)
    weights = {hf_name(name): unpaired(name, values, config) for name, values in tensors_of(reader)}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    gguf_tokenizer(header.metadata)._core.save(str(folder / "tokenizer.json"))
    template = header.metadata["tokenizer.chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False, "chat_template": template}))
    (folder / "config.json").write_text(json.dumps(hf_config(config), indent=1))


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`"""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"
    return f"model.{TOP_NAMES[parts[0]]}.weight"


def unpaired(name: str, values: Matrix, config: ModelConfig) -> Matrix:
    """Rows of Q and K in halves: GGUF stores them pairwise."""
    spec = config.layers[0].attention
    heads = {"attn_q": spec.num_heads, "attn_k": spec.num_kv_heads}.get(name.split(".")[-2])
    if heads is None:
        return values
    return np.ascontiguousarray(values.reshape(heads, -1, 2, values.shape[1]).swapaxes(1, 2)).reshape(values.shape)


def hf_config(config: ModelConfig) -> dict[str, Any]:
    (layer,) = set(config.layers)
    spec, rotation = layer.attention, layer.attention.rotation
    assert rotation is not None and rotation.scaling is None
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": config.hidden_size,
        "intermediate_size": layer.feed_forward.width, "num_hidden_layers": config.num_layers,
        "num_attention_heads": spec.num_heads, "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim, "vocab_size": config.vocab_size, "max_position_embeddings": config.max_model_len,
        "rms_norm_eps": config.rms_norm_eps, "rope_theta": rotation.theta, "hidden_act": "silu",
        "tie_word_embeddings": config.is_tied, "torch_dtype": "float32", "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_ids[0],
    }  # fmt: skip


if __name__ == "__main__":
    main()
