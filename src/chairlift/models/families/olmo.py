"""OLMo 2 and 3: norms after each branch alone, and over all heads of queries and of keys.

OLMo 3 has windows in most layers, and stretches the rotation of the others only.
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
    require,
    with_attention,
    with_layers,
    with_pattern,
    with_windows,
)
from chairlift.models.families.rope import read_rotations
from chairlift.models.mixers.attention import AttentionSpec, Rotation
from chairlift.models.spec import HF_NAMES, ModelConfig

_NAMES = replace(HF_NAMES, after_attention="post_attention_layernorm", after_feed_forward="post_feedforward_layernorm")
_THETA = 500_000.0  # of OLMo 3
_WINDOW, _PATTERN = 4096, 4  # of each group of so many layers, the last has no window


def _olmo2(config: Fields) -> ModelConfig:
    attention = read_attention(config, num_kv_heads=config.size("num_attention_heads"))
    return _model(config, [attention] * num_layers(config))


def _olmo3(config: Fields) -> ModelConfig:
    theta = config.positive("rope_theta", _THETA)
    full, local = read_rotations(config, theta, theta)
    attention = read_attention(config, num_kv_heads=config.size("num_attention_heads"), rotation=full)
    attentions = with_windows(config, attention, all_but_last(_PATTERN, num_layers(config)), _WINDOW)
    return _model(config, [replace(spec, rotation=local) if spec.window else spec for spec in attentions])


def _model(config: Fields, attentions: Sequence[AttentionSpec]) -> ModelConfig:
    require(config, "hidden_act", "silu")
    model = read_model(config, attentions, max_len=2048, has_norm_after=True, eps=1e-5)
    return with_layers(with_attention(model, has_wide_qk_norm=True), has_norm_before=False)


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    """Of both: one with windows is an OLMo 3."""
    model = with_attention(
        with_layers(config, has_norm_before=False, has_norm_after=True), has_qk_norm=False, has_wide_qk_norm=True
    )
    if not (attention := model.layers[0].attention).window:
        return model
    theta = attention.rotation.theta if attention.rotation else _THETA
    local = replace(attention, rotation=Rotation(theta=metadata.positive("rope.freq_base_swa", theta)))
    return with_pattern(metadata, model, local, replace(attention, window=0), _PATTERN)


OLMO2 = Family(
    architecture="Olmo2ForCausalLM", model_type="olmo2", read=_olmo2, names=_NAMES, gguf="olmo2", from_gguf=_from_gguf
)
OLMO3 = Family(architecture="Olmo3ForCausalLM", model_type="olmo3", read=_olmo3, names=_NAMES)
