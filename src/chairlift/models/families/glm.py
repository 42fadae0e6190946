"""GLM-4, dense: norms before and after each branch, biases, half of each head turned, by neighbouring values."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import num_layers, read_attention, read_model, require, with_layers
from chairlift.models.families.rope import Turning
from chairlift.models.spec import HF_NAMES, ModelConfig

_NAMES = replace(
    HF_NAMES,
    gate_up=("mlp.gate_up_proj",),
    after_attention="post_self_attn_layernorm",
    after_feed_forward="post_mlp_layernorm",
    has_paired_rows=True,
)
_EPS = 1.5625e-07  # of norms, where a configuration does not say


def _glm4(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    attention = read_attention(config, num_kv_heads=2, head_dim=128, turning=Turning(share=0.5))
    attention = replace(attention, has_bias=config.flag("attention_bias", True), has_output_bias=False)
    return read_model(config, [attention] * num_layers(config), has_norm_after=True, eps=_EPS)


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    names = replace(config.names, gate_up=("ffn_up",), has_paired_rows=True)
    return replace(with_layers(config, has_norm_after=True), names=names)


GLM4 = Family(
    architecture="Glm4ForCausalLM", model_type="glm4", read=_glm4, names=_NAMES, gguf="glm4", from_gguf=_from_gguf
)
