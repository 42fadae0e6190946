"""A model description from a Hugging Face folder: config.json and generation_config.json.

Always: an architecture, activation, bias, attention pattern or quantisation that the model code does not have is
refused by name. Does not look at weights or tokenizers.
"""

import json
from pathlib import Path
from typing import Any

from chairlift.config.fields import MAX_LAYERS, Fields
from chairlift.config.model import ModelConfig, SamplingDefaults
from chairlift.config.rope import read_rope
from chairlift.core.errors import InvalidConfig

_BY_MODEL_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
ARCHITECTURES = tuple(_BY_MODEL_TYPE.values())
DTYPES = ("float32", "bfloat16", "float16", "float64")
_MISTRAL_WINDOW = 4096  # what a Mistral configuration means when it does not say


def load_hf(folder: Path) -> ModelConfig:
    return load_hf_file(folder / "config.json")


def load_hf_file(path: Path) -> ModelConfig:
    """From a configuration, whatever the file is called."""
    config = Fields(str(path), _read_json(path))
    architecture = _architecture(config)
    _refuse_unsupported(config)
    heads = config.size("num_attention_heads")
    # Llama files from before grouped-query attention do not have these two keys.
    is_llama = architecture == "LlamaForCausalLM"
    kv_heads = config.size("num_key_value_heads", heads if is_llama or "num_key_value_heads" in config.values else None)
    max_len = config.size("max_position_embeddings", 2048 if is_llama else None)
    if heads % kv_heads:
        raise config.bad("num_key_value_heads", f"must divide num_attention_heads {heads}")
    theta, scaling = read_rope(config)
    generation_path = path.with_name("generation_config.json")
    generation = Fields(str(generation_path), _read_json(generation_path) if generation_path.exists() else {})
    return ModelConfig(
        architecture=architecture,
        hidden_size=config.size("hidden_size"),
        num_layers=config.size("num_hidden_layers", most=MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_head_dim(config, architecture, heads),
        intermediate_size=config.size("intermediate_size"),
        vocab_size=config.size("vocab_size"),
        max_model_len=max_len,
        rms_norm_eps=config.positive("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        is_tied=config.flag("tie_word_embeddings", False),
        has_qkv_bias=architecture == "Qwen2ForCausalLM",
        has_qk_norm=architecture == "Qwen3ForCausalLM",
        sliding_window=_sliding_window(config, architecture),
        dtype=_dtype(config),
        bos_id=config.token_id("bos_token_id"),
        eos_ids=tuple(dict.fromkeys(generation.token_ids("eos_token_id") + config.token_ids("eos_token_id"))),
        sampling=_sampling(generation),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidConfig(f"{path}: must hold a JSON object")
    return value


def _architecture(config: Fields) -> str:
    named = config.values.get("architectures")
    if named:
        found = named[0] if isinstance(named, list) else named
    else:
        model_type = config.values.get("model_type")
        found = _BY_MODEL_TYPE.get(model_type, model_type) if isinstance(model_type, str) else model_type
    if found is None:
        raise InvalidConfig(f"{config.origin}: architectures is missing")
    if not isinstance(found, str) or found not in ARCHITECTURES:
        raise InvalidConfig(
            f"{config.origin}: architecture {found!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    return found


def _refuse_unsupported(config: Fields) -> None:
    quantization = config.values.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method", "unnamed") if isinstance(quantization, dict) else quantization
        raise InvalidConfig(f"{config.origin}: quantization_config ({method}) is not supported")
    if config.values.get("hidden_act", "silu") != "silu":
        raise config.bad("hidden_act", "must be 'silu'")
    for key in ("attention_bias", "mlp_bias", "rope_interleaved"):
        if config.flag(key, False):
            raise InvalidConfig(f"{config.origin}: {key} true is not supported")


def _head_dim(config: Fields, architecture: str, heads: int) -> int:
    hidden = config.size("hidden_size")
    if config.values.get("head_dim") is None:
        # What a Qwen3 configuration means when it does not say is 128, whatever the hidden size.
        if architecture == "Qwen3ForCausalLM":
            return 128
        if hidden % heads:
            raise config.bad("hidden_size", f"must be a multiple of num_attention_heads {heads}")
    head_dim = config.size("head_dim", hidden // heads)
    if head_dim % 2:
        raise config.bad("head_dim", "must be even")
    return head_dim


def _sliding_window(config: Fields, architecture: str) -> int:
    """Tokens each position sees, the same in every layer; 0: all."""
    if architecture == "LlamaForCausalLM":
        return 0
    layers = config.size("num_hidden_layers", most=MAX_LAYERS)
    if architecture == "MistralForCausalLM":
        has_window = config.values.get("sliding_window", _MISTRAL_WINDOW) is not None
        sliding = [has_window] * layers
    elif not config.flag("use_sliding_window", False):
        sliding = [False] * layers
    else:
        first = config.values.get("max_window_layers")
        if type(first) is not int:
            raise config.bad("max_window_layers", "must be a whole number")
        sliding = [layer >= first for layer in range(layers)]
    types = config.values.get("layer_types")
    if types is not None:
        if not isinstance(types, list) or any(kind not in ("full_attention", "sliding_attention") for kind in types):
            raise config.bad("layer_types", "must be full_attention or sliding_attention")
        sliding = [kind == "sliding_attention" for kind in types]
    if len(set(sliding)) > 1:
        raise InvalidConfig(f"{config.origin}: layers with and without a sliding window together are not supported")
    if not any(sliding):
        return 0
    return config.size("sliding_window", _MISTRAL_WINDOW if architecture == "MistralForCausalLM" else None)


def _dtype(config: Fields) -> str:
    key = "dtype" if config.values.get("dtype") is not None else "torch_dtype"
    name = str(config.values.get(key) or "float32").removeprefix("torch.")
    if name not in DTYPES:
        raise config.bad(key, f"must be one of {', '.join(DTYPES)}")
    return name


def _sampling(generation: Fields) -> SamplingDefaults:
    top_k = generation.number("top_k", 0)
    top_p = generation.number("top_p", 1.0, most=1.0)
    return SamplingDefaults(
        temperature=generation.number("temperature", 1.0, most=100.0),
        top_k=int(top_k),
        top_p=top_p or 1.0,
        min_p=generation.number("min_p", 0.0, most=1.0),
        repetition_penalty=generation.number("repetition_penalty", 1.0, least=0.01, most=100.0),
    )
