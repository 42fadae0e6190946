import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.gguf.header import GgufHeader, TensorInfo, read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.mixers.attention import AttentionSpec, RopeScaling, Rotation
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import num_parameters

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 256,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500000.0,
    "tokenizer.ggml.eos_token_id": 2,
}
TENSORS = {"token_embd.weight": TensorInfo((64, 100), 8, 0, None)}


def header(change: Mapping[str, Any] | None = None, tensors: Mapping[str, TensorInfo] | None = None) -> GgufHeader:
    metadata = {key: value for key, value in (LLAMA | dict(change or {})).items() if value is not None}
    return GgufHeader(Path("m.gguf"), 3, 32, metadata, TENSORS | dict(tensors or {}))


def renamed(architecture: str) -> dict[str, Any]:
    moved = {key.replace("llama.", f"{architecture}.", 1): value for key, value in LLAMA.items()}
    return dict.fromkeys(LLAMA) | moved | {"general.architecture": architecture}


def attention_of(config: ModelConfig) -> AttentionSpec:
    """Of all layers."""
    (spec,) = {layer.attention for layer in config.layers}
    return spec


def scaling_of(config: ModelConfig) -> RopeScaling | None:
    rotation = attention_of(config).rotation
    assert rotation is not None
    return rotation.scaling


def test_defaults_follow_the_format() -> None:
    config = load_gguf(header({"llama.attention.head_count_kv": None, "llama.rope.freq_base": None}))
    attention = attention_of(config)
    assert (attention.num_kv_heads, attention.head_dim, attention.window) == (4, 16, 0)
    assert attention.rotation == Rotation(theta=10000.0)
    assert (config.is_tied, config.vocab_size) == (True, 100)


def test_an_output_matrix_means_untied() -> None:
    assert not load_gguf(header(tensors={"output.weight": TensorInfo((64, 100), 8, 0, None)})).is_tied


def test_explicit_head_size_wins_over_the_hidden_size() -> None:
    config = load_gguf(header({"llama.attention.key_length": 32, "llama.attention.value_length": 32}))
    assert attention_of(config).head_dim == 32


def test_queries_and_keys_of_a_llama_alone_are_stored_in_pairs() -> None:
    assert load_gguf(header()).names.has_paired_rows
    assert not load_gguf(header(renamed("qwen2"))).names.has_paired_rows


def test_end_of_turn_ends_too() -> None:
    ids = {"tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 2}
    assert load_gguf(header(ids)).eos_ids == (2, 9)


def test_what_ends_an_answer_of_gpt_oss_is_found_in_its_vocabulary() -> None:
    experts = {"gpt-oss.expert_count": 4, "gpt-oss.expert_used_count": 2}
    tokens = {"tokenizer.ggml.tokens": ["a", "<|call|>", "<|return|>", "<|endoftext|>"]}
    config = load_gguf(header(renamed("gpt-oss") | experts | tokens))
    assert (config.eos_ids, load_gguf(header(tokens)).eos_ids) == ((2, 3, 1), (2,))


def test_qwen2_has_biases_and_qwen3_has_norms() -> None:
    bias = {"blk.0.attn_q.bias": TensorInfo((64,), 0, 0, 256)}
    norm = {"blk.0.attn_q_norm.weight": TensorInfo((16,), 0, 0, 64)}
    qwen2, qwen3 = load_gguf(header(renamed("qwen2"), bias)), load_gguf(header(renamed("qwen3"), norm))
    assert (qwen2.architecture, qwen3.architecture) == ("Qwen2ForCausalLM", "Qwen3ForCausalLM")
    assert (attention_of(qwen2).has_bias, attention_of(qwen2).has_qk_norm) == (True, False)
    assert (attention_of(qwen3).has_bias, attention_of(qwen3).has_qk_norm) == (False, True)


@pytest.mark.parametrize(("kind", "dtype"), [(0, "float32"), (1, "float16"), (30, "bfloat16"), (12, "bfloat16")])
def test_dtype_is_what_most_matrices_are_stored_in(kind: int, dtype: str) -> None:
    matrices = {f"blk.{i}.attn_q.weight": TensorInfo((64, 64), kind, 0, None) for i in range(2)}
    norms = {f"blk.{i}.attn_norm.weight": TensorInfo((64,), 0, 0, 256) for i in range(9)}
    assert load_gguf(header(tensors=matrices | norms)).dtype == dtype


def test_linear_scaling_is_read() -> None:
    scaled = header({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
    assert scaling_of(load_gguf(scaled)) == RopeScaling(kind="linear", factor=4.0)


def hybrid(architecture: str, hidden: int, heads: int, **more: Any) -> GgufHeader:
    """With the sizes of Qwen3.6 and 3.8, as the converter writes them."""
    sizes = {
        "context_length": 262144, "embedding_length": hidden, "attention.head_count": heads,
        "attention.key_length": 256, "attention.value_length": 256, "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7, "rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0],
        "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16, "full_attention_interval": 4,
        "nextn_predict_layers": 1, **more,
    }  # fmt: skip
    metadata = {f"{architecture}.{key}": value for key, value in sizes.items()}
    tensors = {name: TensorInfo((hidden, 248320), 8, 0, None) for name in ("token_embd.weight", "output.weight")}
    return GgufHeader(Path("m.gguf"), 3, 32, {"general.architecture": architecture, **metadata}, tensors)


def test_hybrids_of_published_sizes_have_their_numbers_of_parameters() -> None:
    dense = {"block_count": 65, "attention.head_count_kv": 4, "feed_forward_length": 17408}
    dense |= {"ssm.time_step_rank": 48, "ssm.inner_size": 48 * 128}
    sparse = {"block_count": 41, "attention.head_count_kv": 2, "ssm.time_step_rank": 32, "ssm.inner_size": 32 * 128}
    sparse |= {"expert_count": 256, "expert_used_count": 8}
    sparse |= {"expert_feed_forward_length": 512, "expert_shared_feed_forward_length": 512}
    found = [load_gguf(hybrid("qwen35", 5120, 24, **dense)), load_gguf(hybrid("qwen35moe", 2048, 16, **sparse))]
    assert [num_parameters(config) for config in found] == [26_895_998_464, 34_660_610_688]
    assert all(config.warnings == () for config in found)


@pytest.mark.parametrize(("key", "value"), [("attn_logit_softcapping", 30.0), ("attention.causal", False)])
def test_a_key_that_changes_numbers_and_is_not_read_is_refused(key: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=f"m.gguf: llama: {key} is not supported in LlamaForCausalLM, got {value}"):
        load_gguf(header({f"llama.{key}": value}))


def test_neutral_values_are_read_over_and_unknown_keys_are_named() -> None:
    plain = load_gguf(header({"llama.attn_logit_softcapping": 0.0, "llama.vocab_size": 100}))
    assert plain.warnings == ()
    unknown = load_gguf(header({"llama.new_arithmetic": 3, "llama.swin_norm": True})).warnings
    expected = "m.gguf: llama: ignored keys that are not known for LlamaForCausalLM: new_arithmetic, swin_norm"
    assert unknown == (expected,)


def test_sampling_suggestions_in_the_file_are_used() -> None:
    sampling = load_gguf(header({"general.sampling.temp": 0.6, "general.sampling.top_k": 20})).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.6, 20, 1.0)


def write_with_divisors(path: Path, divisors: list[float]) -> GgufHeader:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    for key, value in LLAMA.items():
        if isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
    writer.add_uint32("llama.attention.key_length", 2 * len(divisors))
    writer.add_tensor("token_embd.weight", np.zeros((100, 64), dtype=np.float32))
    writer.add_tensor("rope_freqs.weight", np.array(divisors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_header(path)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_rope_divisors_are_recognised_as_llama3_scaling(tmp_path: Path, factor: float) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(head_dim=64, max_position_embeddings=131072, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 500000.0 ** (-torch.arange(0, 64, 2) / 64)
    found = scaling_of(load_gguf(write_with_divisors(tmp_path / "m.gguf", (plain / scaled).tolist())))
    assert found is not None
    assert (found.kind, found.original_max_len) == ("llama3", 8192)
    assert math.isclose(found.factor, factor, rel_tol=1e-5)


def test_divisors_of_one_are_no_scaling(tmp_path: Path) -> None:
    assert scaling_of(load_gguf(write_with_divisors(tmp_path / "m.gguf", [1.0] * 32))) is None


@pytest.mark.parametrize("divisor", [0.0, -2.0, 3.0, math.nan, math.inf])
def test_other_divisors_are_refused(tmp_path: Path, divisor: float) -> None:
    with pytest.raises(InvalidConfig, match=r"rope_freqs\.weight is not the Llama-3 scaling"):
        load_gguf(write_with_divisors(tmp_path / "m.gguf", [divisor] * 32))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"general.architecture": "gemma"}, "'gemma' is not supported; supported: llama, qwen2, qwen3"),
        ({"general.architecture": None}, "None is not supported"),
        ({"llama.block_count": None}, "block_count is missing"),
        ({"llama.block_count": 0}, "block_count must be a positive whole number"),
        ({"llama.block_count": 2**31 - 1}, "block_count must be a positive whole number up to 10000"),
        ({"llama.attention.head_count": [4, 4]}, "head_count must be a positive whole number"),
        ({"llama.attention.head_count_kv": 3}, "must divide attention.head_count 4"),
        ({"llama.rope.dimension_count": 18}, "rope.dimension_count must be even and at most the head size 16"),
        ({"llama.attention.value_length": 8}, "attention.value_length must equal the head size 16"),
        ({"llama.rope.scaling.type": "dynamic"}, "'dynamic' is not supported; supported: none, linear, yarn"),
        ({"llama.rope.scaling.type": "longrope"}, "tensor rope_factors_long.weight is missing"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}, "original_context_length is missing"),
        ({"llama.expert_count": 8}, "expert_used_count is missing"),
        ({"llama.expert_count": 8, "llama.expert_used_count": 9}, "expert_used_count must be at most expert_count 8"),
        ({"llama.embedding_length": 32}, "token_embd.weight has shape"),
        ({"split.count": 3}, "split GGUF"),
        ({"llama.attention.layer_norm_rms_epsilon": math.nan}, "layer_norm_rms_epsilon"),
        ({"tokenizer.ggml.eos_token_id": "x"}, "must be a token id"),
    ],
)
def test_what_is_not_built_is_refused_by_name(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        load_gguf(header(change))
    assert complaint in str(refusal.value)
    assert "m.gguf" in str(refusal.value)
