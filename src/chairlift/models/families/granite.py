"""Granite 3 and dense Granite 4: as Llama, with factors of embeddings, attention, residuals and logits.

Granite 4 keeps its feed-forward where its larger models keep an expert that all tokens share, and may have no rotation.
"""

from collections.abc import Sequence
from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import (
    num_layers,
    read_attention,
    read_model,
    require,
    with_attention,
    with_layers,
)
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import HF_NAMES, FeedForwardSpec, ModelConfig

_SHARED_NAMES = replace(HF_NAMES, gate_up=("shared_mlp.input_linear",), down="shared_mlp.output_linear")


def _granite(config: Fields) -> ModelConfig:
    return _with_factors(config, [_attention(config)] * num_layers(config))


def _granite4(config: Fields) -> ModelConfig:
    if config.number("num_local_experts", 8) != 0:
        raise config.bad("num_local_experts", "must be 0 (experts are not supported in this family)")
    config.get("num_experts_per_tok")  # means nothing without experts
    types = config.get("layer_types", config.get("layers_block_type"))
    if not isinstance(types, list) or any(kind not in ("attention", "full_attention") for kind in types):
        raise config.bad("layer_types", "must be attention in all layers (recurrent ones are not supported)")
    if len(types) != num_layers(config):
        raise config.bad("layer_types", f"must name each of the {num_layers(config)} layers")
    attention = _attention(config)
    require(config, "normalization_function", "rmsnorm")
    require(config, "position_embedding_type", "nope", "rope")
    if config.get("position_embedding_type") != "rope":
        attention = replace(attention, rotation=None)
    for key in _MAMBA:
        config.get(key)
    model = _with_factors(config, [attention] * num_layers(config))
    feed_forward = FeedForwardSpec(width=config.size("shared_intermediate_size"))
    return with_layers(model, feed_forward=feed_forward)


# Sizes of recurrent layers, which its dense models state too.
_MAMBA = (
    "mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand",
    "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "time_step_limit", "time_step_min", "time_step_max",
    "time_step_floor", "init_method", "attn_layer_indices",
)  # fmt: skip


def _attention(config: Fields) -> AttentionSpec:
    require(config, "hidden_act", "silu")
    attention = read_attention(config, num_kv_heads=config.size("num_attention_heads"))
    return replace(attention, scale=config.positive("attention_multiplier", 1.0))


def _with_factors(config: Fields, attentions: Sequence[AttentionSpec]) -> ModelConfig:
    model = with_layers(
        read_model(config, attentions, max_len=2048), residual_factor=config.positive("residual_multiplier", 1.0)
    )
    return replace(
        model,
        embedding_factor=config.positive("embedding_multiplier", 1.0),
        logit_factor=1.0 / config.positive("logits_scaling", 1.0),
    )


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    """Of both: a file does not say which."""
    attention = config.layers[0].attention
    has_rotation = metadata.flag("rope.scaling.finetuned", True)
    model = with_attention(
        with_layers(config, residual_factor=metadata.positive("residual_scale", 1.0)),
        scale=metadata.positive("attention.scale", attention.scale),
        rotation=attention.rotation if has_rotation else None,
    )
    return replace(
        model,
        embedding_factor=metadata.positive("embedding_scale", 1.0),
        logit_factor=1.0 / metadata.positive("logit_scale", 1.0),
        names=replace(config.names, has_paired_rows=True),
    )


GRANITE = Family(
    architecture="GraniteForCausalLM", model_type="granite", read=_granite, gguf="granite", from_gguf=_from_gguf
)
GRANITE4 = Family(
    architecture="GraniteMoeHybridForCausalLM", model_type="granitemoehybrid", read=_granite4, names=_SHARED_NAMES
)
