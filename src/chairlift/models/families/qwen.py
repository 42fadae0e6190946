"""Qwen 2 and 3: as Llama, with biases of queries, keys and values, or norms of query and key heads."""

from dataclasses import replace
from typing import Any

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import num_layers, read_attention, read_model, require, with_windows
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import ModelConfig

_QWEN3_HEAD_DIM = 128  # where a configuration does not say, whatever the hidden size


def _qwen2(config: Fields) -> ModelConfig:
    return _read(config, replace(read_attention(config), has_bias=True))


def read_qwen3(config: Fields) -> ModelConfig:
    attention = replace(read_attention(config, head_dim=_QWEN3_HEAD_DIM), has_qk_norm=True)
    return _read(config, attention)


def _read(config: Fields, attention: AttentionSpec) -> ModelConfig:
    require(config, "hidden_act", "silu")
    first: Any = num_layers(config)  # layer that has a window
    if config.flag("use_sliding_window", False):
        first = config.get("max_window_layers")
        if type(first) is not int:
            raise config.bad("max_window_layers", "must be a whole number")
    sliding = [layer >= first for layer in range(num_layers(config))]
    return read_model(config, with_windows(config, attention, sliding))


QWEN2 = Family(architecture="Qwen2ForCausalLM", model_type="qwen2", read=_qwen2, gguf="qwen2")
QWEN3 = Family(architecture="Qwen3ForCausalLM", model_type="qwen3", read=read_qwen3, gguf="qwen3")
