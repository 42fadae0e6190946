"""Llama (SmolLM2 too) and Mistral: layers alike, norms before each branch, SiLU."""

from dataclasses import replace

from chairlift.config.families.family import Family
from chairlift.config.families.reading import num_layers, read_attention, read_model, require, with_windows
from chairlift.config.fields import Fields
from chairlift.config.model import ModelConfig

_MISTRAL_WINDOW = 4096  # where a Mistral configuration does not say


def _llama(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    # Files from before grouped-query attention have neither num_key_value_heads nor max_position_embeddings.
    attention = read_attention(config, num_kv_heads=config.size("num_attention_heads"))
    return read_model(config, [attention] * num_layers(config), max_len=2048)


def _mistral(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    has_window = config.get("sliding_window", _MISTRAL_WINDOW) is not None
    sliding = [has_window] * num_layers(config)
    attentions = with_windows(config, read_attention(config), sliding, _MISTRAL_WINDOW)
    return read_model(config, attentions)


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    return replace(config, names=replace(config.names, has_paired_rows=True))


LLAMA = Family(architecture="LlamaForCausalLM", model_type="llama", read=_llama, gguf="llama", from_gguf=_from_gguf)
MISTRAL = Family(architecture="MistralForCausalLM", model_type="mistral", read=_mistral)
