"""Models of text and images whose text is one of our families: config.json and names as the text alone has them.

Always: towers, what images and sound are read by, are skipped by the beginnings of their names. Positions of several
axes (M-RoPE) are equal for text, which makes them plain ones.
"""

import re
from typing import Any

from chairlift.config.fields import shown
from chairlift.core.errors import InvalidConfig

_QWEN2, _QWEN3 = "qwen2", "qwen3"
# By architecture: the model_type of the text, and our family's.
WRAPPERS: dict[str, dict[str, str]] = {
    "Gemma3ForConditionalGeneration": {"gemma3_text": "gemma3_text"},
    "Gemma4ForConditionalGeneration": {"gemma4_text": "gemma4_text"},
    "Gemma4UnifiedForConditionalGeneration": {"gemma4_unified_text": "gemma4_unified_text"},
    "Mistral3ForConditionalGeneration": {"mistral": "mistral", "ministral3": "ministral3"},
    "Qwen2VLForConditionalGeneration": {"qwen2_vl_text": _QWEN2, "qwen2_vl": _QWEN2},
    "Qwen2_5_VLForConditionalGeneration": {"qwen2_5_vl_text": _QWEN2, "qwen2_5_vl": _QWEN2},
    "Qwen3VLForConditionalGeneration": {"qwen3_vl_text": _QWEN3},
    "Qwen3_5ForConditionalGeneration": {"qwen3_5_text": "qwen3_5_text"},
    "Qwen3_5MoeForConditionalGeneration": {"qwen3_5_moe_text": "qwen3_5_moe_text"},
}
# What the smallest of a kind leave out of text_config.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "max_position_embeddings": 131072,
    },
}  # fmt: skip
_TOWERS = (
    "vision_tower", "multi_modal_projector", "visual", "audio_tower", "vision_embedder", "embed_vision", "embed_audio",
)  # fmt: skip
TOWERS = tuple(f"{before}{tower}." for before in ("", "model.") for tower in _TOWERS)
_OF_IMAGES = re.compile(r"vision_|image_|video_|spatial_|mrope_section$")
_SHARED = ("quantization_config", "eos_token_id", "bos_token_id", "dtype", "torch_dtype")  # what the wrapper may say
_BEFORE_TEXT = re.compile(r"^(?:model\.language_model|language_model\.model)\.|^language_model\.(?=lm_head\.)")


def text_values(origin: str, values: dict[str, Any]) -> dict[str, Any] | None:
    """The config.json of the text; None: it is of no wrapper that is known."""
    named = values.get("architectures")
    known = WRAPPERS.get(named[0]) if isinstance(named, list) and named and isinstance(named[0], str) else None
    if known is None:
        return None
    inner = values.get("text_config", values)
    kind = inner.get("model_type") if isinstance(inner, dict) else None
    if not isinstance(kind, str) or kind not in known:
        raise InvalidConfig(f"{origin}: text_config must have model_type {' or '.join(known)}, got {shown(kind)}")
    text = {key: value for key, value in inner.items() if not _OF_IMAGES.match(key)}
    ties = [each for each in (values.get("tie_word_embeddings"), inner.get("tie_word_embeddings")) if each is not None]
    own = {key: values[key] for key in _SHARED if values.get(key) is not None}
    own |= {"tie_word_embeddings": False if False in ties else ties[0]} if ties else {}
    turned = {key: _plain(text[key]) for key in ("rope_scaling", "rope_parameters") if isinstance(text.get(key), dict)}
    return _DEFAULTS.get(kind, {}) | text | own | turned | {"architectures": None, "model_type": known[kind]}


def _plain(rope: dict[str, Any]) -> dict[str, Any]:
    """Without the axes."""
    kept = {key: value for key, value in rope.items() if key not in ("mrope_section", "mrope_interleaved")}
    return {key: "default" if value == "mrope" else value for key, value in kept.items()}


def text_name(name: str) -> str:
    """A tensor's or module's name without what wrappers put before it."""
    return _BEFORE_TEXT.sub(lambda found: "" if found[0] == "language_model." else "model.", name)
