"""Ministral 3, text models: as Mistral, with YaRN and queries that grow with their position."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import (
    num_layers,
    read_attention,
    read_model,
    require,
    with_attention,
    with_windows,
)
from chairlift.models.families.rope import Turning, rotation_map
from chairlift.models.mixers.attention import QueryGrowth
from chairlift.models.spec import ModelConfig

_OWN_KEYS = frozenset({"llama_4_scaling_beta", "max_position_embeddings"})


def _ministral3(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    attention = read_attention(config, num_kv_heads=8, head_dim=128, turning=Turning(own_keys=_OWN_KEYS))
    sliding = [config.get("sliding_window") is not None] * num_layers(config)
    model = read_model(config, with_windows(config, attention, sliding), eps=1e-5)
    return with_attention(model, growth=_growth(config))


def _growth(config: Fields) -> QueryGrowth | None:
    rope = rotation_map(config)
    beta = rope.number("llama_4_scaling_beta", 0.0)
    return QueryGrowth(beta=beta, length=rope.size("original_max_position_embeddings")) if beta else None


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    beta = metadata.number("attention.temperature_scale", 0.0)
    length = metadata.size("rope.scaling.original_context_length") if beta else 1
    model = replace(config, names=replace(config.names, has_paired_rows=True))
    return with_attention(model, growth=QueryGrowth(beta=beta, length=length)) if beta else model


MINISTRAL3 = Family(
    architecture="Ministral3ForCausalLM", model_type="ministral3", read=_ministral3, gguf="mistral3",
    from_gguf=_from_gguf,
)  # fmt: skip
