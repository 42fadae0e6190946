from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from chairlift.config.gguf_header import read_header
from chairlift.config.model import ModelConfig
from chairlift.core.errors import InvalidConfig
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch_ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.gguf import SUPPORTED_TYPES, GgufTensors
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, run

CONFIG = ModelConfig(
    architecture="LlamaForCausalLM", hidden_size=256, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=64,
    intermediate_size=256, vocab_size=64, max_model_len=32, rms_norm_eps=1e-5, rope_theta=1e4, is_tied=True,
)  # fmt: skip
EMBEDDING = ("token_embd.weight", "model.embed_tokens.weight")


def write(path: Path, tensors: dict[str, tuple[np.ndarray, Kind]], architecture: str = "llama") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for name, (data, kind) in tensors.items():
        if kind is Kind.F32:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored(kind: Kind, rows: int, columns: int) -> np.ndarray:
    """Bytes of this type: quantised where the library can, else blocks of random codes with sane scales."""
    source = np.random.default_rng(3)
    values = source.standard_normal((rows, columns), dtype=np.float32)
    if kind not in (Kind.Q4_K, Kind.Q6_K):
        return gguf.quants.quantize(values, kind)
    block_bytes = {Kind.Q4_K: 144, Kind.Q6_K: 210}[kind]
    blocks = source.integers(0, 256, (rows * columns // 256, block_bytes), dtype=np.uint8)
    scale = np.full((len(blocks), 1), 0.01, np.float16).view(np.uint8)
    if kind is Kind.Q4_K:
        blocks[:, 0:2], blocks[:, 2:4] = scale, scale
    else:
        blocks[:, 208:210] = scale
    return blocks.reshape(rows, -1)


def tensors(path: Path, config: ModelConfig = CONFIG, num_threads: int = 2) -> GgufTensors:
    return GgufTensors(read_header(path), config, num_threads)


@pytest.mark.parametrize("name", SUPPORTED_TYPES)
@pytest.mark.parametrize("rows", [3, 700])
def test_each_type_reads_as_the_library_dequantises_it(tmp_path: Path, name: str, rows: int) -> None:
    kind = Kind[name]
    data = stored(kind, rows, 768)
    path = write(tmp_path / "model.gguf", {EMBEDDING[0]: (data, kind)})
    expected = torch.from_numpy(gguf.quants.dequantize(data, kind).reshape(rows, 768))
    assert torch.equal(tensors(path).read(EMBEDDING[1], (rows, 768)).float(), expected)


def test_a_type_that_is_not_supported_is_named(tmp_path: Path) -> None:
    data = np.zeros((2, 84), np.uint8)
    path = write(tmp_path / "model.gguf", {EMBEDDING[0]: (data, Kind.Q2_K)})
    with pytest.raises(InvalidConfig, match=r"token_embd.weight is Q2_K; supported: F32"):
        tensors(path).read(EMBEDDING[1], (2, 256))


def test_a_missing_tensor_and_a_wrong_shape_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", {EMBEDDING[0]: (np.zeros((2, 32), np.float32), Kind.F32)})
    with pytest.raises(InvalidConfig, match=r"model.gguf: tensor model.norm.weight is missing"):
        tensors(path).read("model.norm.weight", (32,))
    with pytest.raises(InvalidConfig, match=r"token_embd.weight has shape \[2, 32\], the configuration says \[3, 32\]"):
        tensors(path).read(EMBEDDING[1], (3, 32))


def paired(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """What a converter to GGUF does to the rows of Q and K of a Llama: 0, d/2, 1, d/2 + 1, ..."""
    half = rows.shape[0] // heads // 2
    order = [head * 2 * half + part * half + i for head in range(heads) for i in range(half) for part in (0, 1)]
    return rows[order]


def write_twin(twin: Twin, path: Path, architecture: str) -> Path:
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    written = {}
    for name, tensor in twin.reference.state_dict().items():
        stem, suffix = name.rsplit(".", 1)
        if stem == "lm_head" and twin.config.is_tied:
            continue
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            tensor = paired(tensor, twin.config.num_heads if "q_proj" in stem else twin.config.num_kv_heads)
        if stem.startswith("model.layers."):
            _, _, index, part = stem.split(".", 3)
            name = f"blk.{index}.{parts[part]}.{suffix}"
        else:
            name = f"{names[stem]}.{suffix}"
        written[name] = (tensor.numpy(), Kind.F32)
    written["rope_freqs.weight"] = (np.ones(twin.config.head_dim // 2, np.float32), Kind.F32)
    return write(path, written, architecture)


@pytest.mark.parametrize(
    ("family", "architecture"),
    [("llama-gqa-tied", "llama"), ("llama-mha", "llama"), ("qwen2-bias", "qwen2"), ("qwen3-qk-norm", "qwen3")],
)
def test_a_twin_written_as_gguf_is_the_same_model(tmp_path: Path, family: str, architecture: str) -> None:
    twin = make_twin(tmp_path / "hf", family)
    path = write_twin(twin, tmp_path / "twin.gguf", architecture)
    source = tensors(path, twin.config)
    decoder = build_model(twin.config, TorchOps(), source, torch.float32, CPU, twin.config.max_model_len)
    tokens = random_tokens(20)
    kv = KvCache(twin.config, 8, 4, torch.float32, CPU)
    logits = run(decoder, kv, [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))])
    torch.testing.assert_close(logits[0], twin.reference_logits(tokens)[-1], atol=1e-4, rtol=1e-4)
