"""The configs of tiny decoders for `--exact`: one of every family, and one of what no family has."""

from dataclasses import replace
from typing import Any

from chairlift.config.fields import Fields
from chairlift.models.families.cohere import COHERE2
from chairlift.models.families.exaone import EXAONE4
from chairlift.models.families.family import Family
from chairlift.models.families.gemma import GEMMA2, GEMMA3
from chairlift.models.families.gemma4 import GEMMA4, GEMMA4_UNIFIED
from chairlift.models.families.glm import GLM4
from chairlift.models.families.granite import GRANITE, GRANITE4
from chairlift.models.families.ministral import MINISTRAL3
from chairlift.models.families.mixtures.deepseek import DEEPSEEK2, DEEPSEEK3, GLM4_LITE
from chairlift.models.families.mixtures.glm_moe import GLM4_MOE
from chairlift.models.families.mixtures.gpt_oss import GPT_OSS
from chairlift.models.families.mixtures.mixtral import MIXTRAL
from chairlift.models.families.mixtures.qwen_moe import QWEN3_MOE
from chairlift.models.families.olmo import OLMO2, OLMO3
from chairlift.models.families.phi import PHI3
from chairlift.models.families.qwen_hybrid import QWEN3_5, QWEN3_5_MOE, QWEN3_NEXT
from chairlift.models.families.seed import SEED_OSS
from chairlift.models.families.smollm import SMOLLM3
from chairlift.models.families.starcoder import STARCODER2
from chairlift.models.spec import HF_NAMES, FeedForwardSpec, ModelConfig, uniform_model

SHAPE: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 96, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2,
    "head_dim": 16, "intermediate_size": 200, "vocab_size": 301, "max_model_len": 400, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip


def declared() -> ModelConfig:
    """All that layers may have beyond Llama's, and layers that differ."""
    plain = uniform_model(**SHAPE)
    first = plain.layers[0]
    attention = replace(first.attention, window=37, cap=0.5, scale=0.3)
    feed_forward = FeedForwardSpec(width=120, activation="gelu_tanh")
    second = replace(
        first, mixer=attention, feed_forward=feed_forward, has_norm_after=True, residual_factor=0.22
    )  # fmt: skip
    names = replace(HF_NAMES, after_attention="attention_norm", after_feed_forward="mlp_norm", norm_offset=1.0)
    return replace(plain, layers=(first, second), names=names, embedding_factor=9.8, logit_cap=2.0)


def read(family: Family, **own: Any) -> ModelConfig:
    """What a family makes of a config.json with these keys besides sizes."""
    sizes = {
        "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 200, "vocab_size": 301, "max_position_embeddings": 400, "sliding_window": 37,
    }  # fmt: skip
    return family.model(Fields(family.architecture, sizes | own))


LATENT: dict[str, Any] = {
    "num_key_value_heads": 6, "q_lora_rank": 24, "kv_lora_rank": 48, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 20, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 72,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "sliding_window": None,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
GEMMA4_LAYERS = ["sliding_attention", "full_attention"] * 2
LONGROPE = {"type": "su", "short_factor": [1.0] * 6, "long_factor": [1.5] * 6}
DELTA_NET: dict[str, Any] = {
    "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] + ["linear_attention"] * 2,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
    "partial_rotary_factor": 0.5, "sliding_window": None,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 72, "shared_expert_intermediate_size": 72,
}  # fmt: skip
# Every family of families/known.py, and what no family has.
CONFIGS = {
    "llama": uniform_model(**SHAPE),
    "tied": uniform_model(**SHAPE | {"is_tied": True, "num_kv_heads": 6}),
    "qwen2": uniform_model(**SHAPE | {"architecture": "Qwen2ForCausalLM", "has_qkv_bias": True}),
    "qwen3": uniform_model(**SHAPE | {"architecture": "Qwen3ForCausalLM", "has_qk_norm": True}),
    "mistral": uniform_model(**SHAPE | {"architecture": "MistralForCausalLM", "sliding_window": 37}),
    "gemma2": read(GEMMA2, query_pre_attn_scalar=24, attn_logit_softcapping=0.5, final_logit_softcapping=2.0),
    "gemma3": read(GEMMA3, query_pre_attn_scalar=24, sliding_window_pattern=2),
    "gemma4-shared": read(
        GEMMA4,
        num_key_value_heads=1,
        global_head_dim=32,
        hidden_size_per_layer_input=16,
        num_kv_shared_layers=2,
        use_double_wide_mlp=True,
        final_logit_softcapping=2.0,
        num_hidden_layers=4,
        layer_types=GEMMA4_LAYERS,
    ),
    "gemma4-moe": read(
        GEMMA4,
        num_global_key_value_heads=1,
        global_head_dim=16,
        hidden_size_per_layer_input=0,
        attention_k_eq_v=True,
        enable_moe_block=True,
        num_experts=6,
        top_k_experts=2,
        moe_intermediate_size=72,
        layer_types=GEMMA4_LAYERS[:2],
    ),
    "gemma4-unified": read(
        GEMMA4_UNIFIED,
        num_key_value_heads=6,
        num_global_key_value_heads=3,
        global_head_dim=16,
        attention_k_eq_v=True,
        layer_types=GEMMA4_LAYERS[:2],
    ),
    "mixtral": read(MIXTRAL, num_local_experts=5, num_experts_per_tok=2),
    "qwen3-moe": read(
        QWEN3_MOE,
        num_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=72,
        mlp_only_layers=[1],
        sliding_window=None,
    ),
    "phi3": read(PHI3, rope_scaling=LONGROPE, partial_rotary_factor=0.75, original_max_position_embeddings=100),
    "granite": read(
        GRANITE, attention_multiplier=0.2, residual_multiplier=0.22, embedding_multiplier=3, logits_scaling=5
    ),
    "granite4": read(GRANITE4, num_local_experts=0, layer_types=["attention"] * 2, shared_intermediate_size=120),
    "smollm3": read(SMOLLM3, no_rope_layers=[1, 0]),
    "glm4": read(GLM4),
    "glm4-moe": read(
        GLM4_MOE,
        n_routed_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=72,
        first_k_dense_replace=1,
        n_group=2,
        topk_group=1,
        sliding_window=None,
    ),
    "gpt-oss": read(GPT_OSS, num_local_experts=6, num_experts_per_tok=2, rope_parameters=YARN | {"truncate": False}),
    "deepseek2": read(
        DEEPSEEK2, **LATENT | {"q_lora_rank": None}, rope_scaling=YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}
    ),
    "deepseek3": read(DEEPSEEK3, **LATENT, n_group=2, topk_group=1, routed_scaling_factor=2.5),
    "glm4-lite": read(GLM4_LITE, **LATENT, n_group=1, topk_group=1, routed_scaling_factor=1.8),
    "olmo2": read(OLMO2),
    "olmo3": read(OLMO3, layer_types=["sliding_attention", "full_attention"], rope_scaling=YARN),
    "exaone4": read(EXAONE4, sliding_window_pattern="LG"),
    "seed-oss": read(SEED_OSS, attention_out_bias=True, mlp_bias=True),
    "ministral3": read(MINISTRAL3, rope_parameters=YARN | {"llama_4_scaling_beta": 0.3}),
    "cohere2": read(COHERE2, sliding_window_pattern=2),
    "starcoder2": read(STARCODER2),
    "qwen3.5": read(QWEN3_5, **DELTA_NET),
    "qwen3.5-moe": read(QWEN3_5_MOE, **DELTA_NET, **EXPERTS),
    "qwen3-next": read(QWEN3_NEXT, **DELTA_NET, **EXPERTS),
    "declared": declared(),
}
