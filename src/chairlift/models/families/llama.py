"""Llama (SmolLM2 too) and Mistral: layers alike, norms before each branch, SiLU."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.mixtures.experts import experts_of_gguf
from chairlift.models.families.reading import num_layers, read_attention, read_model, require, with_windows
from chairlift.models.families.rope import THETA
from chairlift.models.spec import ModelConfig

_MIXTRAL = "MixtralForCausalLM"
_MISTRAL_WINDOW = 4096  # where a Mistral configuration does not say


def _llama(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    # Files from before grouped-query attention have neither num_key_value_heads nor max_position_embeddings.
    attention = read_attention(config, num_kv_heads=config.size("num_attention_heads"))
    return read_model(config, [attention] * num_layers(config), max_len=2048)


def _mistral(config: Fields) -> ModelConfig:
    return read_mistral(config, _MISTRAL_WINDOW)


def read_mistral(
    config: Fields, window: int | None, theta: float = THETA, eps: float = 1e-6
) -> ModelConfig:  # fmt: skip
    """The others: where the configuration does not say."""
    require(config, "hidden_act", "silu")
    has_window = config.get("sliding_window", window) is not None
    sliding = [has_window] * num_layers(config)
    attentions = with_windows(config, read_attention(config, theta=theta), sliding, window)
    return read_model(config, attentions, eps=eps)


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    """Mixtral's files have this architecture too."""
    model = experts_of_gguf(metadata, replace(config, names=replace(config.names, has_paired_rows=True)))
    has_experts = model.layers[0].feed_forward.experts is not None
    return replace(model, architecture=_MIXTRAL) if has_experts else model


LLAMA = Family(architecture="LlamaForCausalLM", model_type="llama", read=_llama, gguf="llama", from_gguf=_from_gguf)
MISTRAL = Family(architecture="MistralForCausalLM", model_type="mistral", read=_mistral)
