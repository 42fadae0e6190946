"""Rotary embedding settings from a Hugging Face configuration, old style and new.

Always: every key of the settings was understood. A kind or key that is not built is refused by name, because a model
run with the wrong rotation answers fluently and wrongly.

    new   "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, ...}
    old   "rope_theta": 500000.0, "rope_scaling": {"rope_type" or "type": "llama3", "factor": 8.0, ...}

A file that has both must say the same twice.
"""

from typing import Any

from chairlift.config.fields import Fields
from chairlift.config.model import RopeScaling, Rotation
from chairlift.core.errors import InvalidConfig

_DEFAULT_THETA = 10000.0
_ALWAYS = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor"})
_KEYS = {
    "default": _ALWAYS,
    "linear": _ALWAYS | {"factor"},
    "llama3": _ALWAYS | {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
}


def read_rotation(config: Fields) -> Rotation:
    """The one rotation of all layers."""
    _refuse_partial(config)
    theta = config.positive("rope_theta", _DEFAULT_THETA)
    if config.get("rope_parameters") is None:
        return older_rotation(config, theta)
    rotation = rotation_at(config, "rope_parameters", theta)
    refuse_other(config, rotation)
    return rotation


def older_rotation(config: Fields, theta: float) -> Rotation:
    """From rope_scaling, where it is given."""
    return Rotation(theta=theta) if config.get("rope_scaling") is None else rotation_at(config, "rope_scaling", theta)


def refuse_other(config: Fields, rotation: Rotation) -> None:
    """The old keys beside rope_parameters, which said this rotation, must say the same."""
    refuse_other_theta(config, "rope_theta", rotation)
    if config.get("rope_scaling") is not None and older_rotation(config, rotation.theta) != rotation:
        raise config.bad("rope_scaling", "must be null, or say the same as rope_parameters")


def refuse_other_theta(config: Fields, key: str, rotation: Rotation) -> None:
    if config.positive(key, rotation.theta) != rotation.theta:
        raise config.bad(key, f"must be null, or {rotation.theta:g} as in rope_parameters")


def rotation_at(config: Fields, name: str, theta: float | None = None) -> Rotation:
    """From the map of this name; theta: where the map does not say."""
    values = config.get(name)
    if not isinstance(values, dict):
        raise config.bad(name, "must be a map")
    rope = Fields(f"{config.origin}: {name}", values)
    kind = _kind(rope, values)
    _refuse_partial(rope)
    return Rotation(theta=rope.positive("rope_theta", theta), scaling=_scaling(rope, kind))


def _kind(rope: Fields, values: dict[str, Any]) -> str:
    kind = values.get("rope_type", values.get("type"))
    kind = "default" if kind is None else kind
    if not isinstance(kind, str) or kind not in _KEYS:
        raise InvalidConfig(f"{rope.origin}: rope_type {kind!r} is not supported; supported: {', '.join(_KEYS)}")
    unknown = sorted(str(key) for key in values if key not in _KEYS[kind])
    if unknown:
        raise InvalidConfig(f"{rope.origin}: unknown key {unknown[0]!r} for rope_type {kind!r}")
    return kind


def _scaling(rope: Fields, kind: str) -> RopeScaling | None:
    if kind == "default":
        return None
    factor = rope.number("factor", least=1.0)
    if kind == "linear":
        return RopeScaling(kind=kind, factor=factor)
    low, high = rope.positive("low_freq_factor"), rope.positive("high_freq_factor")
    if low >= high:
        raise rope.bad("high_freq_factor", "must be above low_freq_factor")
    original = rope.size("original_max_position_embeddings")
    return RopeScaling(kind=kind, factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_len=original)


def _refuse_partial(fields: Fields) -> None:
    if fields.number("partial_rotary_factor", 1.0) != 1.0:
        raise fields.bad("partial_rotary_factor", "must be 1 (partial rotation is not supported)")
