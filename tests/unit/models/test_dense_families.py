"""Configurations as they are published, of each dense family: what they mean, and what is refused in one line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import load_hf
from chairlift.models.mixers.attention import QueryGrowth
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import num_parameters

YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0,
        "beta_slow": 1.0, "attention_factor": 1.2079}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
FACTORS = {"attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "residual_multiplier": 0.22}


def sizes(hidden: int, layers: int, heads: int, kv_heads: int, inner: int, vocab: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": inner, "vocab_size": vocab,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "attention_dropout": 0.0, **more,
    }  # fmt: skip


# Billions of parameters, and the keys of a published model.
PUBLISHED: dict[str, tuple[float, dict[str, Any]]] = {
    "Phi3ForCausalLM": (3.84, sizes(
        3072, 32, 24, 8, 8192, 200064, hidden_act="silu", tie_word_embeddings=True, partial_rotary_factor=0.75,
        original_max_position_embeddings=4096, sliding_window=262144, resid_pdrop=0.0, mlp_bias=False,
        lm_head_bias=False, rope_theta=10000.0,
        rope_scaling={"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.1] * 48},
    )),
    "GraniteForCausalLM": (2.53, sizes(
        2048, 40, 32, 8, 8192, 49159, **FACTORS, logits_scaling=8.0, mlp_bias=False, attention_bias=False,
        tie_word_embeddings=True, rope_theta=1e7, rope_scaling=None,
    )),
    "GraniteMoeHybridForCausalLM": (3.40, sizes(
        2560, 40, 40, 8, 8192, 100352, **FACTORS, logits_scaling=10.0, shared_intermediate_size=8192,
        layer_types=["attention"] * 40, num_local_experts=0, num_experts_per_tok=0, mamba_d_state=256,
        mamba_conv_bias=True, normalization_function="rmsnorm", init_method="mup", position_embedding_type="rope",
        tie_word_embeddings=True, rope_theta=1e7,
    )),
    "SmolLM3ForCausalLM": (3.08, sizes(
        2048, 36, 16, 4, 11008, 128256, no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9, rope_theta=5e6,
        use_sliding_window=False, sliding_window=None, max_window_layers=28, layer_types=["full_attention"] * 36,
        attention_bias=False, mlp_bias=False,
    )),
    "Glm4ForCausalLM": (9.40, sizes(
        4096, 40, 32, 2, 13696, 151552, head_dim=128, attention_bias=True, partial_rotary_factor=0.5,
        rope_theta=10000.0, tie_word_embeddings=False,
    )),
    "Olmo2ForCausalLM": (7.30, sizes(4096, 32, 32, 32, 11008, 100352, attention_bias=False, rope_theta=500000)),
    "Olmo3ForCausalLM": (7.30, sizes(
        4096, 32, 32, 32, 11008, 100278, rope_theta=500000, rope_scaling=YARN, sliding_window=4096,
        layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 8,
    )),
    "Exaone4ForCausalLM": (32.0, sizes(
        5120, 64, 40, 8, 27392, 102400, head_dim=128, sliding_window=4096, sliding_window_pattern="LLLG",
        rope_theta=1000000, rope_scaling=LLAMA3,
    )),
    "SeedOssForCausalLM": (36.15, sizes(
        5120, 64, 80, 8, 27648, 155136, head_dim=128, attention_bias=True, attention_out_bias=False, mlp_bias=False,
        rope_scaling={"rope_type": "default"}, rope_theta=1e7, residual_dropout=0.1, pretraining_tp=1,
    )),
    "Ministral3ForCausalLM": (8.49, sizes(
        4096, 34, 32, 8, 14336, 131072, head_dim=128, sliding_window=None, rope_parameters={
            "type": "yarn", "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0,
            "original_max_position_embeddings": 16384, "max_position_embeddings": 262144, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
        },
    )),
    "Cohere2ForCausalLM": (8.03, sizes(
        4096, 32, 32, 8, 14336, 256000, layer_norm_eps=1e-5, logit_scale=0.25, sliding_window=4096,
        sliding_window_pattern=4, rotary_pct=1.0, position_embedding_type="rope_gptj", use_parallel_block=True,
        use_gated_activation=True, order_of_interleaved_layers="local_attn_first", rope_theta=50000,
        cache_implementation="hybrid",
    )),
    "Gemma4ForCausalLM": (4.63, sizes(
        1536, 35, 8, 1, 6144, 262144, head_dim=256, global_head_dim=512, num_global_key_value_heads=None,
        layer_types=([*["sliding_attention"] * 4, "full_attention"]) * 7, num_kv_shared_layers=20,
        use_double_wide_mlp=True, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144,
        sliding_window=512, attention_k_eq_v=False, enable_moe_block=False, num_experts=None, top_k_experts=None,
        hidden_activation="gelu_pytorch_tanh", final_logit_softcapping=30.0, tie_word_embeddings=True,
        use_bidirectional_attention=None, rope_parameters={
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
        },
    )),
    "Gemma4UnifiedForCausalLM": (11.91, sizes(
        3840, 48, 16, 8, 15360, 262144, head_dim=256, global_head_dim=512, num_global_key_value_heads=1,
        attention_k_eq_v=True, sliding_window=1024, final_logit_softcapping=30.0, tie_word_embeddings=True,
        hidden_activation="gelu_pytorch_tanh", use_bidirectional_attention="vision",
    )),
    "Starcoder2ForCausalLM": (3.03, sizes(
        3072, 30, 24, 2, 12288, 49152, hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-5, norm_type="layer_norm",
        mlp_type="default", scale_attn_weights=True, sliding_window=4096, use_bias=True, residual_dropout=0.1,
    )),
}  # fmt: skip


def load(folder: Path, architecture: str, **changes: Any) -> ModelConfig:
    values = {"architectures": [architecture], **PUBLISHED[architecture][1], **changes}
    (folder / "config.json").write_text(json.dumps(values))
    return load_hf(folder)


@pytest.mark.parametrize("architecture", PUBLISHED)
def test_a_published_configuration_is_read_without_a_warning(tmp_path: Path, architecture: str) -> None:
    config = load(tmp_path, architecture)
    assert config.warnings == ()
    assert abs(num_parameters(config) / 1e9 / PUBLISHED[architecture][0] - 1) < 0.005


def test_layers_differ_as_published(tmp_path: Path) -> None:
    def turns(architecture: str) -> list[bool]:
        return [layer.attention.rotation is not None for layer in load(tmp_path, architecture).layers[:8]]

    def windows(architecture: str) -> list[int]:
        return [layer.attention.window for layer in load(tmp_path, architecture).layers[:4]]

    assert turns("SmolLM3ForCausalLM") == [True, True, True, False] * 2
    for architecture in ("Exaone4ForCausalLM", "Cohere2ForCausalLM"):
        assert turns(architecture) == [True, True, True, False] * 2
        assert windows(architecture) == [4096, 4096, 4096, 0]
    full, local = (load(tmp_path, "Olmo3ForCausalLM").layers[index].attention for index in (3, 2))
    assert (full.rotation.scaling.kind, local.rotation.scaling, local.window) == ("yarn", None, 4096)
    attention = load(tmp_path, "Phi3ForCausalLM").layers[0].attention
    assert (attention.rotation.num_turned, attention.window) == (96, 262144)
    assert attention.rotation.scaling.attention_factor == pytest.approx(1.1902380714)
    growth = {layer.attention.growth for layer in load(tmp_path, "Ministral3ForCausalLM").layers}
    assert growth == {QueryGrowth(beta=0.1, length=16384)}


@pytest.mark.parametrize(("architecture", "changes", "complaint"), [
    ("Phi3ForCausalLM", {"partial_rotary_factor": 0.6875}, "short_factor must be a list of 44 numbers above 0"),
    ("Phi3ForCausalLM", {"partial_rotary_factor": 1.5}, "partial_rotary_factor must give an even part of a head"),
    ("Phi3ForCausalLM", {"partial_rotary_factor": 0.01}, "partial_rotary_factor must give an even part of a head"),
    ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [0.0] * 48}},
     "long_factor must be a list of 48 numbers above 0"),
    ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope", "long_mscale": 1.2}}, "unknown key 'long_mscale'"),
    ("Phi3ForCausalLM", {"lm_head_bias": True}, "lm_head_bias is not supported in Phi3ForCausalLM"),
    ("GraniteForCausalLM", {"logits_scaling": 0}, "logits_scaling must be above 0"),
    ("GraniteMoeHybridForCausalLM", {"num_local_experts": 64}, "num_local_experts must be 0"),
    ("GraniteMoeHybridForCausalLM", {"layer_types": ["mamba"] * 40}, "layer_types must be attention in all layers"),
    ("GraniteMoeHybridForCausalLM", {"layer_types": ["attention"]}, "layer_types must name each of the 40 layers"),
    ("GraniteMoeHybridForCausalLM", {"position_embedding_type": "alibi"}, "position_embedding_type must be 'nope' or"),
    ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}, "no_rope_layers must be 0 or 1 for each of the 36 layers"),
    ("Glm4ForCausalLM", {"num_key_value_heads": 3}, "num_key_value_heads must divide num_attention_heads 32"),
    ("Glm4ForCausalLM", {"rope_interleaved": True}, "rope_interleaved true is not supported"),
    ("Gemma4ForCausalLM", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention must be 'vision'"),
    ("Gemma4ForCausalLM", {"num_kv_shared_layers": 32}, "num_kv_shared_layers must leave a layer with window 0 keys"),
    ("Gemma4ForCausalLM", {"layer_types": ["sliding_attention"] * 35}, "layer_types must end with full_attention"),
    ("Gemma4ForCausalLM", {"vocab_size_per_layer_input": 9}, "vocab_size_per_layer_input must be vocab_size 262144"),
    ("Gemma4UnifiedForCausalLM", {"per_layer_config": {"5": {"head_dim": 512}}},
     "per_layer_config must say the same of each layer with full_attention"),
    ("Olmo2ForCausalLM", {"global_head_dim": 512}, "global_head_dim is not supported in Olmo2ForCausalLM"),
    ("Olmo2ForCausalLM", {"clip_qkv": 8.0}, "clip_qkv is not supported in Olmo2ForCausalLM"),
    ("Olmo3ForCausalLM", {"rope_parameters": {"full_attention": {}}}, "sliding_attention must be a map"),
    ("Exaone4ForCausalLM", {"sliding_window_pattern": "LLX"}, "sliding_window_pattern must be a positive whole number"),
    ("SeedOssForCausalLM", {"attention_out_bias": 1}, "attention_out_bias must be true or false"),
    ("Ministral3ForCausalLM", {"rope_parameters": None}, "rope_scaling must be a map"),
    ("Cohere2ForCausalLM", {"use_parallel_block": False}, "use_parallel_block must be true"),
    ("Cohere2ForCausalLM", {"use_qk_norm": True}, "use_qk_norm is not supported in Cohere2ForCausalLM"),
    ("Cohere2ForCausalLM", {"rotary_pct": 0.5}, "rotary_pct is not supported in Cohere2ForCausalLM"),
    ("Starcoder2ForCausalLM", {"hidden_act": "gelu"}, "hidden_act must be 'gelu_pytorch_tanh'"),
    ("Starcoder2ForCausalLM", {"norm_type": "rms_norm"}, "norm_type must be 'layer_norm'"),
    ("Starcoder2ForCausalLM", {"num_attention_heads": 25}, "num_key_value_heads must divide num_attention_heads 25"),
])  # fmt: skip
def test_what_is_not_built_is_refused_in_one_line(
    tmp_path: Path, architecture: str, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(complaint)) as refusal:
        load(tmp_path, architecture, **changes)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(f"{tmp_path}/config.json: ")
