"""Gemma 2 and 3, text models: norms before and after each branch, windows in most layers, GELU.

Norms are stored without the 1 that is added to them; GGUF files have it. Gemma 2 caps scores and logits; Gemma 3 has
norms of heads instead, and another rotation in layers with a window.
"""

from collections.abc import Sequence
from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import (
    all_but_last,
    num_layers,
    read_attention,
    read_model,
    refuse_true,
    require,
    with_layers,
    with_pattern,
    with_windows,
)
from chairlift.models.families.rope import read_rotations, refuse_other_theta
from chairlift.models.mixers.attention import AttentionSpec, Rotation
from chairlift.models.spec import HF_NAMES, ModelConfig

_NAMES = replace(
    HF_NAMES,
    after_attention="post_attention_layernorm",
    before_feed_forward="pre_feedforward_layernorm",
    after_feed_forward="post_feedforward_layernorm",
    norm_offset=1.0,
)
_LOCAL_THETA, _THETA = 10_000.0, 1_000_000.0  # of Gemma 3, with a window and without
_WINDOW = 4096
# Of each group of so many layers, the last has no window.
_PATTERN = {"gemma2": 2, "gemma3": 6}
# Of the largest models, whose GGUF files do not say that scores are scaled by hidden size and heads.
_LARGEST = {"gemma2": 46, "gemma3": 62}  # layers


def _gemma2(config: Fields) -> ModelConfig:
    attention = replace(_attention(config), cap=_cap(config, "attn_logit_softcapping", 50.0))
    attentions = with_windows(config, attention, all_but_last(_PATTERN["gemma2"], num_layers(config)), _WINDOW)
    return _model(config, attentions, _cap(config, "final_logit_softcapping", 30.0))


def _gemma3(config: Fields) -> ModelConfig:
    if config.get("attn_logit_softcapping") is not None:
        raise config.bad("attn_logit_softcapping", "must be null")
    theta, local_theta = config.positive("rope_theta", _THETA), config.positive("rope_local_base_freq", _LOCAL_THETA)
    full, local = read_rotations(config, theta, local_theta)
    refuse_other_theta(config, "rope_local_base_freq", local)
    attention = replace(_attention(config, full), has_qk_norm=True)
    pattern = config.size("sliding_window_pattern", config.size("_sliding_window_pattern", _PATTERN["gemma3"]))
    windowed = with_windows(config, attention, all_but_last(pattern, num_layers(config)), _WINDOW)
    attentions = [replace(spec, rotation=local) if spec.window else spec for spec in windowed]
    return _model(config, attentions, _cap(config, "final_logit_softcapping", 0.0))


def _attention(config: Fields, rotation: Rotation | None = None) -> AttentionSpec:
    attention = read_attention(config, head_dim=256, rotation=rotation)
    return replace(attention, scale=config.positive("query_pre_attn_scalar", 256.0) ** -0.5)


def _cap(config: Fields, key: str, default: float) -> float:
    """Null means none; where the key is absent there is the default."""
    return 0.0 if config.get(key, default) is None else config.number(key, default)


def _model(config: Fields, attentions: Sequence[AttentionSpec], cap: float) -> ModelConfig:
    for key in ("hidden_activation", "hidden_act"):  # older files have both
        require(config, key, "gelu_pytorch_tanh")
    refuse_true(config, "use_bidirectional_attention")
    model = read_model(config, attentions, is_tied=True, activation="gelu_tanh", has_norm_after=True)
    return replace(model, embedding_factor=model.hidden_size**0.5, logit_cap=cap)


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    kind = "gemma2" if config.architecture == GEMMA2.architecture else "gemma3"
    plain = config.layers[0].attention
    is_largest = config.num_layers == _LARGEST[kind]
    width = config.hidden_size // plain.num_heads if is_largest else plain.head_dim
    full = replace(plain, window=0, scale=width**-0.5, cap=metadata.number("attn_logit_softcapping", 0.0))
    local = replace(full, window=metadata.size("attention.sliding_window", _WINDOW))
    if kind == "gemma3":
        local = replace(local, rotation=Rotation(theta=metadata.positive("rope.freq_base_swa", _LOCAL_THETA)))
    feed_forward = replace(config.layers[0].feed_forward, activation="gelu_tanh")
    model = with_layers(config, feed_forward=feed_forward, has_norm_after=True)
    return replace(
        with_pattern(metadata, model, local, full, _PATTERN[kind]),
        embedding_factor=config.hidden_size**0.5,
        logit_cap=metadata.number("final_logit_softcapping", 0.0),
    )


GEMMA2 = Family(
    architecture="Gemma2ForCausalLM", model_type="gemma2", read=_gemma2, names=_NAMES, gguf="gemma2",
    from_gguf=_from_gguf,
)  # fmt: skip
GEMMA3 = Family(
    architecture="Gemma3ForCausalLM", model_type="gemma3_text", read=_gemma3, names=_NAMES, gguf="gemma3",
    from_gguf=_from_gguf,
)  # fmt: skip
