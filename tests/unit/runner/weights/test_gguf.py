from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.parts import Part
from chairlift.models.spec import FeedForwardSpec
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.gguf import GgufTensors, supported_types
from chairlift.runner.weights.source import kept
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, run

EMBEDDING = "token_embd.weight"


def write(
    path: Path, tensors: dict[str, tuple[np.ndarray, Kind]], architecture: str = "llama",
    metadata: dict[str, Any] | None = None,
) -> Path:  # fmt: skip
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (metadata or {}).items():
        if isinstance(value, bool):
            writer.add_bool(f"{architecture}.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"{architecture}.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{architecture}.{key}", value)
        else:
            writer.add_float32(f"{architecture}.{key}", value)
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
    """Bytes of this type: quantised where the library can, else random blocks that stand for finite numbers."""
    source = np.random.default_rng(3)
    try:
        return gguf.quants.quantize(source.standard_normal((rows, columns), dtype=np.float32), kind)
    except NotImplementedError:
        per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = source.integers(0, 256, (rows * columns // per_block, block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        blocks[~np.isfinite(gguf.quants.dequantize(blocks, kind)).all(axis=1)] = 0
    return blocks.reshape(rows, -1)


def tensors(path: Path) -> GgufTensors:
    return GgufTensors(read_header(path), num_threads=2)


@pytest.mark.parametrize("name", supported_types())
@pytest.mark.parametrize("rows", [3, 700])
def test_each_type_reads_as_the_library_dequantises_it(tmp_path: Path, name: str, rows: int) -> None:
    kind = Kind[name]
    data = stored(kind, rows, 768)
    path = write(tmp_path / "model.gguf", {EMBEDDING: (data, kind)})
    expected = torch.from_numpy(gguf.quants.dequantize(data, kind).reshape(rows, 768))
    assert torch.equal(tensors(path).read(EMBEDDING, (rows, 768)).float(), expected)


def test_all_that_the_library_has_is_supported() -> None:
    quantised = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_M", "IQ2_XXS", "IQ4_XS", "IQ4_NL", "TQ1_0", "MXFP4"}
    assert quantised | {"F32", "F16", "BF16", "Q8_0", "Q4_0"} <= set(supported_types())


@pytest.mark.parametrize(("kind", "said"), [(Kind.Q8_1, "Q8_1"), (Kind.I8, "I8"), (31, "Q4_0_4_4"), (99, "type 99")])
def test_a_type_that_the_library_cannot_read_is_named(tmp_path: Path, kind: int, said: str) -> None:
    path = write(tmp_path / "model.gguf", {EMBEDDING: (np.zeros((2, 320), np.uint8), Kind.Q8_1)})
    content = path.read_bytes()
    # The number of its type follows name and shape.
    at = content.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    path.write_bytes(content[:at] + int(kind).to_bytes(4, "little") + content[at + 4 :])
    with pytest.raises(InvalidConfig) as refusal:
        tensors(path).read(EMBEDDING, (2, 256))
    message = str(refusal.value)
    assert f"model.gguf: tensor token_embd.weight is {said}, which cannot be read; supported: F32, F16, Q4_0" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", [name for name in supported_types() if name != "NVFP4"])  # all its scales are finite
def test_a_scale_that_is_no_number_is_refused_with_tensor_and_file(
    tmp_path: Path, name: str, recwarn: pytest.WarningsRecorder
) -> None:
    kind = Kind[name]
    data = stored(kind, 64, 768).copy()
    raw = data.view(np.uint8).reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
    raw[-1] = 0xFF  # as a scale: not a number, or not finite
    path = write(tmp_path / "model.gguf", {EMBEDDING: (data, kind)})
    with pytest.raises(InvalidConfig) as refusal:
        tensors(path).read(EMBEDDING, (64, 768))
    assert str(refusal.value).endswith(
        "model.gguf: tensor token_embd.weight holds values that are not finite numbers (damaged?)"
    )
    assert not recwarn.list


def test_a_missing_tensor_and_a_wrong_shape_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", {EMBEDDING: (np.zeros((2, 32), np.float32), Kind.F32)})
    with pytest.raises(InvalidConfig, match=r"model.gguf: tensor output_norm.weight is missing"):
        tensors(path).read("output_norm.weight", (32,))
    with pytest.raises(InvalidConfig, match=r"token_embd.weight has shape \[2, 32\], the configuration says \[3, 32\]"):
        tensors(path).read(EMBEDDING, (3, 32))


def paired(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """What a converter to GGUF does to the rows of Q and K of a Llama: 0, d/2, 1, d/2 + 1, ..."""
    half = rows.shape[0] // heads // 2
    order = [head * 2 * half + part * half + i for head in range(heads) for i in range(half) for part in (0, 1)]
    return rows[order]


def metadata_of(twin: Twin) -> dict[str, float]:
    config, (layer,) = twin.config, set(twin.config.layers)
    attention, rotation = layer.attention, layer.attention.rotation
    assert rotation is not None and rotation.scaling is None
    return {
        "block_count": config.num_layers, "context_length": config.max_model_len, "vocab_size": config.vocab_size,
        "embedding_length": config.hidden_size, "feed_forward_length": layer.feed_forward.width,
        "attention.head_count": attention.num_heads, "attention.head_count_kv": attention.num_kv_heads,
        "attention.key_length": attention.head_dim, "attention.value_length": attention.head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps, "rope.freq_base": rotation.theta,
    } | _experts_of(layer.feed_forward)  # fmt: skip


def _experts_of(spec: FeedForwardSpec) -> dict[str, float]:
    if (experts := spec.experts) is None:
        return {}
    return {
        "expert_count": experts.count, "expert_used_count": experts.num_chosen,
        "expert_feed_forward_length": spec.width,
    }  # fmt: skip


def by_matrix(tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a reference, with its experts' gate and up apart."""
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        if last == "gate_up_proj":
            gate, up = tensor.chunk(2, dim=1)
            yield from ((f"{stem}.gate_exps.weight", gate), (f"{stem}.up_exps.weight", up))
        else:
            yield f"{name}.weight" if stem.endswith("experts") else name, tensor


def write_twin(twin: Twin, path: Path, architecture: str) -> Path:
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_exps": "ffn_gate_exps", "mlp.experts.up_exps": "ffn_up_exps",
        "mlp.experts.down_proj": "ffn_down_exps",
    }  # fmt: skip
    written, attention = {}, twin.config.layers[0].attention
    for name, tensor in by_matrix(twin.reference.state_dict()):
        stem, suffix = name.rsplit(".", 1)
        if stem == "lm_head" and twin.config.is_tied:
            continue
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            tensor = paired(tensor, attention.num_heads if "q_proj" in stem else attention.num_kv_heads)
        if stem.startswith("model.layers."):
            _, _, index, part = stem.split(".", 3)
            name = f"blk.{index}.{parts[part]}.{suffix}"
        else:
            name = f"{names[stem]}.{suffix}"
        written[name] = (tensor.numpy(), Kind.F32)
    written["rope_freqs.weight"] = (np.ones(attention.head_dim // 2, np.float32), Kind.F32)
    return write(path, written, architecture, metadata_of(twin))


IN_GGUF = [("llama-gqa-tied", "llama"), ("llama-mha", "llama"), ("mistral", "llama"), ("qwen2-bias", "qwen2"),
           ("qwen3-qk-norm", "qwen3")]  # fmt: skip
MIXTURES = [("mixtral", "llama"), ("qwen3-moe", "qwen3moe")]


@pytest.mark.parametrize(("family", "architecture"), IN_GGUF + MIXTURES)
def test_a_twin_written_as_gguf_is_the_same_model(tmp_path: Path, family: str, architecture: str) -> None:
    twin = make_twin(tmp_path / "hf", family, mlp_only_layers=[])
    path = write_twin(twin, tmp_path / "twin.gguf", architecture)
    config = load_gguf(read_header(path))
    decoder = build_model(config, TorchOps(), tensors(path), torch.float32, CPU, config.max_model_len)
    tokens = random_tokens(20)
    kv = KvCache(config, 8, 4, torch.float32, CPU)
    logits = run(decoder, kv, [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))])
    torch.testing.assert_close(logits[0], twin.reference_logits(tokens)[-1], atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
def test_blocks_of_experts_are_kept_and_give_what_they_stand_for(tmp_path: Path) -> None:
    names, count = ("ffn_gate_exps", "ffn_up_exps"), 3
    kinds = (Kind.Q8_0, Kind.Q4_0)
    written = {f"{name}.weight": stored(kind, count * 8, 64) for name, kind in zip(names, kinds, strict=True)}
    path = write(tmp_path / "m.gguf", {
        name: (rows.reshape(count, 8, -1), kind) for (name, rows), kind in zip(written.items(), kinds, strict=True)
    })  # fmt: skip
    source, ops = tensors(path), NativeOps(2)
    parts = [Part(name, (count, 8, 64)) for name in written]
    blocks = kept(source, parts, ops.keeps)
    assert blocks is not None
    wide = torch.cat([source.read(part.name, part.shape) for part in parts], dim=1)
    x = torch.randn(5, 64)
    for expert in range(count):
        weight = ops.stored_weight([part.expert(expert) for part in blocks], None, torch.float32)
        torch.testing.assert_close(weight.linear(x), x @ wide[expert].T, atol=0.2, rtol=0.02)  # x in 8 bits
