import json
from pathlib import Path
from typing import Any

import pytest
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import load_hf
from chairlift.models.mixers.attention import AttentionSpec, RopeScaling, Rotation
from chairlift.models.spec import FeedForwardSpec, LayerSpec, ModelConfig, SamplingDefaults

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
# As written before `rope_parameters` and `dtype` existed.
OLD_LLAMA: dict[str, Any] = SMALL | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def save(folder: Path, config: PretrainedConfig, architecture: str) -> Path:
    config.architectures = [architecture]
    config.save_pretrained(folder)
    return folder


def write(folder: Path, change: dict[str, Any], drop: tuple[str, ...] = ()) -> Path:
    values = {key: value for key, value in (OLD_LLAMA | change).items() if key not in drop}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def windows(config: ModelConfig) -> list[int]:
    return [layer.attention.window for layer in config.layers]


def test_llama_as_transformers_writes_it(tmp_path: Path) -> None:
    rope = LLAMA3_ROPE | {"rope_theta": 500000.0}
    written = LlamaConfig(
        **SMALL, rope_parameters=rope, tie_word_embeddings=True, dtype="bfloat16", eos_token_id=[2, 7]
    )
    config = load_hf(save(tmp_path, written, "LlamaForCausalLM"))
    assert (config.architecture, config.num_layers, config.hidden_size) == ("LlamaForCausalLM", 3, 64)
    assert (config.vocab_size, config.max_model_len) == (100, 512)
    assert (config.is_tied, config.dtype, config.bos_id, config.eos_ids) == (True, "bfloat16", 1, (2, 7))
    scaling = RopeScaling(kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_len=256)
    attention = AttentionSpec(
        num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, rotation=Rotation(theta=500000.0, scaling=scaling)
    )
    assert set(config.layers) == {LayerSpec(mixer=attention, feed_forward=FeedForwardSpec(width=128))}


def test_old_and_new_spelling_of_rope_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old = load_hf(write(tmp_path / "old", {"rope_scaling": LLAMA3_ROPE}))
    new = {"rope_parameters": LLAMA3_ROPE | {"rope_theta": 500000.0}}
    assert load_hf(write(tmp_path / "new", new, drop=("rope_theta", "rope_scaling"))) == old


def test_both_spellings_of_rope_in_one_file_must_say_the_same(tmp_path: Path) -> None:
    new = {"rope_parameters": LLAMA3_ROPE | {"rope_theta": 500000.0}}
    alone = load_hf(write(tmp_path, new, drop=("rope_theta", "rope_scaling")))
    assert load_hf(write(tmp_path, new | {"rope_scaling": LLAMA3_ROPE}, drop=("rope_theta",))) == alone
    with pytest.raises(InvalidConfig, match="rope_scaling must be null, or say the same as rope_parameters"):
        load_hf(write(tmp_path, new | {"rope_scaling": {"type": "linear", "factor": 2.0}}))
    gemma = {"architectures": ["Gemma3ForCausalLM"], "hidden_act": None, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"},
    }}  # fmt: skip
    load_hf(write(tmp_path, gemma | {"rope_scaling": {"type": "linear", "factor": 8.0}}))
    with pytest.raises(InvalidConfig, match="rope_scaling must be null, or say the same as rope_parameters"):
        load_hf(write(tmp_path, gemma | {"rope_scaling": {"type": "linear", "factor": 4.0}}))


def test_a_theta_beside_another_in_rope_parameters_is_refused(tmp_path: Path) -> None:
    new = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    assert load_hf(write(tmp_path, new | {"rope_theta": 10000})).layers[0].attention.rotation.theta == 10000.0
    with pytest.raises(InvalidConfig, match="rope_theta must be null, or 10000 as in rope_parameters, got 500000.0"):
        load_hf(write(tmp_path, new))
    gemma = {"architectures": ["Gemma3ForCausalLM"], "hidden_act": None, "rope_parameters": {
        "full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4},
    }}  # fmt: skip
    load_hf(write(tmp_path, gemma | {"rope_theta": 1e6, "rope_local_base_freq": 1e4}))
    with pytest.raises(InvalidConfig, match=r"rope_theta must be null, or 1e\+06 as in rope_parameters"):
        load_hf(write(tmp_path, gemma | {"rope_theta": 1e4}))
    with pytest.raises(InvalidConfig, match="rope_local_base_freq must be null, or 10000 as in rope_parameters"):
        load_hf(write(tmp_path, gemma | {"rope_theta": 1e6, "rope_local_base_freq": 2e4}))


def test_oldest_llama_without_newer_keys(tmp_path: Path) -> None:
    drop = ("num_key_value_heads", "rope_theta", "rope_scaling", "torch_dtype", "max_position_embeddings")
    config = load_hf(write(tmp_path, {}, drop))
    attention = config.layers[0].attention
    assert (attention.num_kv_heads, attention.rotation) == (4, Rotation(theta=10000.0))
    assert (config.dtype, config.max_model_len) == ("float32", 2048)


@pytest.mark.parametrize("window", [128, None])
def test_mistral_window(tmp_path: Path, window: int | None) -> None:
    config = load_hf(save(tmp_path, MistralConfig(**SMALL, sliding_window=window), "MistralForCausalLM"))
    assert windows(config) == [window or 0] * 3


def test_qwen2_has_biases_and_no_window(tmp_path: Path) -> None:
    config = load_hf(save(tmp_path, Qwen2Config(**SMALL), "Qwen2ForCausalLM"))
    assert {(layer.attention.has_bias, layer.attention.has_qk_norm) for layer in config.layers} == {(True, False)}
    assert windows(config) == [0] * 3


def test_qwen2_with_a_window_in_all_layers_is_served(tmp_path: Path) -> None:
    written = Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=64, max_window_layers=0)
    assert windows(load_hf(save(tmp_path, written, "Qwen2ForCausalLM"))) == [64] * 3


@pytest.mark.parametrize("drop", [(), ("layer_types",)])
def test_qwen2_with_a_window_in_some_layers_is_served(tmp_path: Path, drop: tuple[str, ...]) -> None:
    written = Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=64, max_window_layers=2)
    path = save(tmp_path, written, "Qwen2ForCausalLM") / "config.json"
    values = {key: value for key, value in json.loads(path.read_text()).items() if key not in drop}
    path.write_text(json.dumps(values))
    assert windows(load_hf(tmp_path)) == [0, 0, 64]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"layer_types": ["full_attention"] * 2}, "layer_types must name each of the 3 layers"),
        ({"layer_types": ["linear_attention"] * 3}, "layer_types must be full_attention or sliding_attention"),
        ({"use_sliding_window": True, "sliding_window": 64}, "max_window_layers must be a whole number"),
        ({"layer_types": ["sliding_attention"] * 3}, "sliding_window is missing"),
    ],
)
def test_windows_that_are_not_understood_are_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        load_hf(write(tmp_path, {"architectures": ["Qwen2ForCausalLM"]} | change))


def test_qwen3_has_norms_and_its_own_head_size(tmp_path: Path) -> None:
    config = load_hf(save(tmp_path, Qwen3Config(**SMALL, head_dim=32), "Qwen3ForCausalLM"))
    (attention,) = {layer.attention for layer in config.layers}
    assert (attention.has_bias, attention.has_qk_norm, attention.head_dim) == (False, True, 32)


def test_model_type_stands_in_for_missing_architectures(tmp_path: Path) -> None:
    assert load_hf(write(tmp_path, {"architectures": None})).architecture == "LlamaForCausalLM"


def test_linear_scaling_under_its_old_name(tmp_path: Path) -> None:
    config = load_hf(write(tmp_path, {"rope_scaling": {"type": "linear", "factor": 2.0}}))
    rotation = Rotation(theta=500000.0, scaling=RopeScaling(kind="linear", factor=2.0))
    assert {layer.attention.rotation for layer in config.layers} == {rotation}


def test_generation_config_gives_end_tokens_and_sampling(tmp_path: Path) -> None:
    generation = GenerationConfig(eos_token_id=[5, 2], do_sample=True, temperature=0.6, top_p=0.9, top_k=20)
    generation.save_pretrained(write(tmp_path, {}))
    config = load_hf(tmp_path)
    assert config.eos_ids == (5, 2)
    assert config.sampling == SamplingDefaults(temperature=0.6, top_p=0.9, top_k=20)


def test_without_generation_config_there_are_plain_defaults(tmp_path: Path) -> None:
    config = load_hf(write(tmp_path, {}))
    assert (config.eos_ids, config.sampling) == ((2,), SamplingDefaults())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "'GemmaForCausalLM' is not supported"),
        ({"architectures": None, "model_type": None}, "architectures is missing"),
        ({"rope_scaling": LLAMA3_ROPE | {"rope_type": "yarn"}}, "unknown key 'high_freq_factor' for rope_type 'yarn'"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "original_max_position_embeddings is missing"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 1}},
            "beta_fast must be above beta_slow 1",
        ),
        (
            {
                "rope_scaling": {
                    "type": "longrope",
                    "short_factor": [1.0] * 8,
                    "long_factor": [1.0] * 7,
                    "original_max_position_embeddings": 64,
                }
            },
            "long_factor must be a list of 8 numbers above 0",
        ),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic' is not supported"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "beta": 1}}, "unknown key 'beta' for rope_type 'linear'"),
        ({"rope_scaling": {"type": "linear"}}, "factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor must be a number"),
        ({"rope_scaling": "linear"}, "rope_scaling must be a map"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "unknown key 'full_attention'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1"),
        ({"hidden_act": "gelu"}, "hidden_act must be 'silu'"),
        ({"attention_bias": 1}, "attention_bias must be true or false"),
        ({"mlp_bias": "no"}, "mlp_bias must be true or false"),
        ({"rope_interleaved": True}, "rope_interleaved true is not supported"),
        ({"quantization_config": {"quant_method": "quark"}}, "quantization_config (quark) is not supported"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_attention_heads 4"),
        ({"hidden_size": 62}, "must be a multiple of num_attention_heads"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"vocab_size": "many"}, "vocab_size must be a positive whole number, got 'many'"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps must be a number between 0 and inf"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps must be a number between 0 and inf"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive whole number"),
        ({"head_dim": 15}, "head_dim must be even"),
        ({"torch_dtype": "int8"}, "torch_dtype must be one of"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be a token id"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps must be a number between 0"),
    ],
)
def test_what_is_not_built_is_refused_by_name(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        load_hf(write(tmp_path, change))
    assert complaint in str(refusal.value)
    assert "config.json" in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"logit_scale": 0.1}, "logit_scale is not supported in LlamaForCausalLM, got 0.1"),
        ({"residual_multiplier": 0.22}, "residual_multiplier is not supported"),
        ({"embedding_multiplier": 12}, "embedding_multiplier is not supported"),
        ({"attention_multiplier": 0.0078125}, "attention_multiplier is not supported"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is not supported"),
        ({"clip_qkv": 8.0}, "clip_qkv is not supported"),
        ({"use_qk_norm": True}, "use_qk_norm is not supported"),
        ({"qkv_bias": True}, "qkv_bias is not supported"),
        ({"no_bias": False}, "no_bias is not supported"),
        ({"hidden_activation": "gelu"}, "hidden_activation is not supported"),
        ({"use_parallel_residual": True}, "use_parallel_residual is not supported"),
        ({"rotary_pct": 0.25}, "rotary_pct is not supported"),
        ({"sliding_window": 4096}, "sliding_window is not supported"),
        ({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "layer_types is not supported"),
        ({"no_rope_layers": [1, 1, 0]}, "no_rope_layers is not supported"),
        ({"num_local_experts": 8}, "num_local_experts is not supported"),
        ({"scale_embedding": 1}, "scale_embedding is not supported"),
        ({"architectures": ["Qwen2ForCausalLM"], "final_logit_softcapping": 30.0}, "in Qwen2ForCausalLM, got 30.0"),
        ({"architectures": ["Gemma3ForCausalLM"], "hidden_act": None, "partial_rotary_factor": 0.5}, "got 0.5"),
    ],
)
def test_a_key_of_other_families_that_changes_arithmetic_is_refused(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        load_hf(write(tmp_path, change))
    assert complaint in str(refusal.value)


def test_neutral_and_harmless_keys_pass_in_silence(tmp_path: Path) -> None:
    plain = load_hf(write(tmp_path, {}))
    neutral = {
        "logit_scale": 1.0, "residual_multiplier": 1, "attn_logit_softcapping": None, "clip_qkv": None,
        "use_qk_norm": False, "no_bias": True, "layer_types": ["full_attention"] * 3, "no_rope_layers": [1, 1, 1],
        "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 21, "num_experts": 0,
    }  # fmt: skip
    harmless = {"pad_token_id": 0, "use_cache": True, "attention_dropout": 0.0, "_name_or_path": "x", "auto_map": {}}
    found = load_hf(write(tmp_path, neutral | harmless))
    assert found == plain and not found.warnings


def test_other_keys_that_are_not_read_are_named_in_one_warning(tmp_path: Path) -> None:
    found = load_hf(write(tmp_path, {"hill_depth": 3, "lift_speed": 2.5, "valley": None, "use_cache": True}))
    (warning,) = found.warnings
    assert warning.endswith("config.json: ignored keys that are not known for LlamaForCausalLM: hill_depth, lift_speed")


@pytest.mark.parametrize("kind", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, Gemma2Config, Gemma3TextConfig])
def test_all_keys_that_transformers_writes_are_known(tmp_path: Path, kind: type[PretrainedConfig]) -> None:
    config = kind()
    config.architectures = [kind.__name__.replace("TextConfig", "Config").replace("Config", "ForCausalLM")]
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False))
    assert not load_hf(tmp_path).warnings


# The keys of published files, those above left out.
@pytest.mark.parametrize(
    ("architecture", "given"),
    [
        ("LlamaForCausalLM", {
            "is_llama_config": True, "rope_interleaved": False, "pretraining_tp": 1,
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
        }),
        ("Qwen2ForCausalLM", {
            "max_window_layers": 28, "sliding_window": 131072, "use_mrope": False, "use_sliding_window": False,
        }),
        ("MistralForCausalLM", {"sliding_window": 4096}),
        ("Gemma2ForCausalLM", {
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256, "cache_implementation": "hybrid",
        }),
        ("Gemma3ForCausalLM", {
            "hidden_act": None, "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": None,
            "rope_local_base_freq": 10000, "sliding_window_pattern": 6, "cache_implementation": "hybrid",
            "query_pre_attn_scalar": 256, "sliding_window": 512,
        }),
    ],
)  # fmt: skip
def test_the_keys_of_published_files_are_known(tmp_path: Path, architecture: str, given: dict[str, Any]) -> None:
    found = load_hf(write(tmp_path, {"architectures": [architecture]} | given))
    assert found.architecture == architecture and not found.warnings


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 100_000, "\ufeff{}"])
def test_a_broken_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidConfig, match=r"config\.json"):
        load_hf(tmp_path)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidConfig, match="not valid JSON"):
        load_hf(tmp_path)
