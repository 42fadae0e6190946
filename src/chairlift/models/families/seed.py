"""Seed-OSS: as Llama, with biases of queries, keys and values."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import num_layers, read_attention, read_model, require
from chairlift.models.spec import ModelConfig


def _seed(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    attention = replace(
        read_attention(config, num_kv_heads=8, head_dim=128),
        has_bias=config.flag("attention_bias", True),
        has_output_bias=config.flag("attention_out_bias", False),
    )
    return read_model(config, [attention] * num_layers(config))


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    return replace(config, names=replace(config.names, before_feed_forward="post_attention_norm"))


SEED_OSS = Family(
    architecture="SeedOssForCausalLM", model_type="seed_oss", read=_seed, gguf="seed_oss", from_gguf=_from_gguf
)
