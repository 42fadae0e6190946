"""GPT-OSS: attention sinks, a window in every second layer, biases, experts in four bits."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.mixtures.experts import read_experts, require_scores, with_experts
from chairlift.models.families.reading import (
    all_but_last,
    num_layers,
    read_attention,
    read_model,
    require,
    with_layers,
    with_pattern,
    with_windows,
)
from chairlift.models.families.rope import rotation_map
from chairlift.models.mixers.attention import Rotation
from chairlift.models.spec import CLAMP, HF_NAMES, STEEPNESS, ModelConfig

_NAMES = replace(
    HF_NAMES,
    router="mlp.router",
    expert_gate_up=("mlp.experts.gate_up_proj",),
    expert_down="mlp.experts.down_proj",
    expert_form="columns",
)
_THETA, _WINDOW, _HEAD_DIM = 150_000.0, 128, 64
_PATTERN = 2  # of each group of so many layers, the last has no window
_OF_CHOSEN = 3  # scores in GGUF files


def _gpt_oss(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    for key, value in (("swiglu_limit", CLAMP), ("swiglu_alpha", STEEPNESS)):
        if config.number(key, value) != value:
            raise config.bad(key, f"must be {value:g}")
    rotation_map(config)
    has_bias = config.flag("attention_bias", True)
    attention = read_attention(config, head_dim=_HEAD_DIM, theta=_THETA)
    attention = replace(attention, has_bias=has_bias, has_output_bias=has_bias, has_sinks=True)
    sliding = all_but_last(_PATTERN, num_layers(config))
    model = read_model(config, with_windows(config, attention, sliding, _WINDOW), activation="clamped", eps=1e-5)
    experts = read_experts(
        config, ("num_local_experts",), "num_experts_per_tok", scores="chosen", has_router_bias=True, has_bias=True
    )
    for key in ("experts_per_token", "initial_context_length"):  # said by other keys too
        config.get(key)
    return with_experts(model, config.size("intermediate_size"), experts, [True] * model.num_layers)


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    require_scores(metadata, _OF_CHOSEN)
    (layer,) = config.kinds_of_layers
    full = replace(layer.attention, window=0, has_sinks=True, rotation=_untruncated(layer.attention.rotation))
    local = replace(full, window=metadata.size("attention.sliding_window", _WINDOW))
    model = with_layers(config, feed_forward=replace(layer.feed_forward, activation="clamped"))
    model = with_pattern(metadata, model, local, full, _PATTERN)
    experts = read_experts(
        metadata, ("expert_count",), "expert_used_count", scores="chosen", has_router_bias=True, has_bias=True
    )
    width = metadata.size("expert_feed_forward_length", layer.feed_forward.width)
    model = replace(model, names=replace(model.names, before_feed_forward="post_attention_norm"))
    return with_experts(model, width, experts, [True] * model.num_layers)


def _untruncated(rotation: Rotation | None) -> Rotation | None:
    """GGUF files do not say that the family's YaRN blends between pairs."""
    if rotation is None or rotation.scaling is None:
        return rotation
    return replace(rotation, scaling=replace(rotation.scaling, is_truncated=False))


GPT_OSS = Family(
    architecture="GptOssForCausalLM", model_type="gpt_oss", read=_gpt_oss, names=_NAMES, quantised=("mxfp4",),
    gguf="gpt-oss", gguf_ends=("<|return|>", "<|endoftext|>", "<|call|>"), from_gguf=_from_gguf,
)  # fmt: skip
