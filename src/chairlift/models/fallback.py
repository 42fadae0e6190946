"""Models that transformers computes: what a config.json says of one, without that library, and the options it lacks.

What a config.json says of a model that transformers computes, without that library.

Always: a model whose memory is not keys and values of its own layers is refused by name. Layers, sizes of heads and the
number of weights are not told by keys that all files share: `runner/fallback/describe.py` finds them.
"""

import json
from typing import Any

from chairlift.config.fields import Fields
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.spec import FallbackModel, ModelConfig

# Names of the same fact in files of different families.
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "n_embed")
_LENGTH = (
    "max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_sequence_length", "max_seq_len",
    "max_seq_length", "context_length",
)  # fmt: skip
_LAYER_KINDS = ("layer_types", "layers_block_type", "block_types")
# Layers whose memory is keys and values, all of them or a window; or that have none.
_WITH_KEYS = ("full_attention", "sliding_attention", "attention", "moe", "mlp", "dense", "sparse")
# Keys of recurrent layers, in files that do not name the kinds of their layers.
_RECURRENT = (
    "ssm_state_size", "state_size", "mamba_d_state", "mamba_d_conv", "conv_kernel", "conv_kernel_size", "conv_L_cache",
    "linear_conv_kernel_dim", "hybrid_override_pattern", "lru_width", "attention_hidden_size", "short_conv_kernel_size",
)  # fmt: skip
_CANNOT = "transformers cannot compute it in pages"


def read_fallback(config: Fields, architecture: str) -> ModelConfig:
    """Without layers: these are found when the library is there."""
    if isinstance(config.get("text_config"), dict):
        raise config.bad("text_config", f"is of a model of text and more: {_CANNOT}, only models of text")
    refuse_memories(config)
    return ModelConfig(
        architecture=architecture,
        hidden_size=_size(config, _HIDDEN),
        vocab_size=config.size("vocab_size"),
        max_model_len=_size(config, _LENGTH),
        layers=(),
        rms_norm_eps=0.0,
        fallback=FallbackModel(config_json=json.dumps(config.values, sort_keys=True)),
    )


def refuse_memories(config: Fields) -> None:
    """Refuses models that keep something else than keys and values of each layer."""
    if config.get("is_encoder_decoder"):
        raise config.bad("is_encoder_decoder", f"is true: {_CANNOT}, only decoders")
    for key in _LAYER_KINDS:
        kinds = config.get(key)
        others = [kind for kind in kinds if kind not in _WITH_KEYS] if isinstance(kinds, list) else []
        if others:
            raise config.bad(
                key, f"has {others[0]!r} layers, which need another memory than keys and values: {_CANNOT}"
            )
    if key := next((key for key in _RECURRENT if config.get(key)), ""):
        raise config.bad(key, f"tells of recurrent layers, which need another memory than keys and values: {_CANNOT}")
    if shared := config.get("num_kv_shared_layers"):
        raise config.bad("num_kv_shared_layers", f"is {shared}: layers share keys and values, so {_CANNOT}")


def _size(config: Fields, keys: tuple[str, ...]) -> int:
    """The first of the keys that is there."""
    found: dict[str, Any] = {key: config.get(key) for key in keys}
    return config.size(next((key for key, value in found.items() if value is not None), keys[0]))


_MODEL = "transformers computes this model"


def check_fallback(settings: Settings) -> None:
    """Refuses, by name and with the way out, what only models of our own do."""
    if settings.exact:
        raise InvalidConfig(f"exact: {_MODEL}, whose products add up by the number of rows; leave --exact out")
    if settings.tensor_parallel > 1:
        raise InvalidConfig(
            f"tensor_parallel {settings.tensor_parallel}: {_MODEL}, in one process; leave --tensor-parallel out"
        )
    if settings.quantize not in ("auto", "none"):
        raise InvalidConfig(f"quantize {settings.quantize}: {_MODEL}, with weights as they are; use --quantize none")
    if settings.is_mindspore:
        raise InvalidConfig(f"device {settings.device}: {_MODEL}, by torch; use --device cpu or cuda")
    if settings.kv_dtype == "int8":
        raise InvalidConfig(f"kv_dtype int8: {_MODEL}, with keys and values as they are; use --kv-dtype auto")
