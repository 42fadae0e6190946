"""Starcoder 2: centred norms with biases, biases everywhere, a feed-forward without a gate."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import (
    num_layers,
    read_attention,
    read_model,
    require,
    with_layers,
    with_windows,
)
from chairlift.models.spec import HF_NAMES, ModelConfig

_NAMES = replace(HF_NAMES, gate_up=("mlp.c_fc",), down="mlp.c_proj")


def _starcoder2(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "gelu_pytorch_tanh")
    config.get("activation_function")  # of some files, beside hidden_act, which counts
    require(config, "norm_type", "layer_norm")
    require(config, "mlp_type", "default")
    has_bias = config.flag("use_bias", True)
    attention = replace(read_attention(config, num_kv_heads=2), has_bias=has_bias, has_output_bias=has_bias)
    sliding = [config.get("sliding_window") is not None] * num_layers(config)
    attentions = with_windows(config, attention, sliding)
    model = read_model(
        config, attentions, max_len=4096, is_tied=True, activation="gelu_tanh", eps=1e-5, eps_key="norm_epsilon"
    )
    return _with_inner(replace(model, has_centred_norms=True, has_norm_biases=True), has_bias)


def _with_inner(model: ModelConfig, has_bias: bool) -> ModelConfig:
    feed_forward = replace(
        model.layers[0].feed_forward, activation="gelu_tanh", has_gate=False, has_bias=has_bias
    )  # fmt: skip
    return with_layers(model, feed_forward=feed_forward)


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    model = replace(config, has_centred_norms=True, has_norm_biases=True)
    return _with_inner(model, config.layers[0].feed_forward.has_bias)


STARCODER2 = Family(
    architecture="Starcoder2ForCausalLM", model_type="starcoder2", read=_starcoder2, names=_NAMES, gguf="starcoder2",
    from_gguf=_from_gguf,
)  # fmt: skip
