"""Rotary embedding settings from a Hugging Face configuration, old style and new.

Always: every key of the settings was understood. A kind or key that is not built is refused by name, because a model
run with the wrong rotation answers fluently and wrongly.

    new   "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, ...}
    old   "rope_theta": 500000.0, "rope_scaling": {"rope_type" or "type": "llama3", "factor": 8.0, ...}

A file that has both must say the same twice.
"""

import math
from dataclasses import dataclass
from typing import Any

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import RopeScaling, Rotation

THETA = 10000.0
_ALWAYS = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor"})
_SCALED = _ALWAYS | {"factor", "original_max_position_embeddings"}
_KEYS = {
    "default": _ALWAYS,
    "proportional": _ALWAYS,
    "linear": _ALWAYS | {"factor"},
    "llama3": _SCALED | {"low_freq_factor", "high_freq_factor"},
    "yarn": _SCALED | {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"},
    "longrope": _SCALED | {"short_factor", "long_factor", "attention_factor"},
}
_OLDER_KINDS = {"su": "longrope"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turning:
    """What a family's rotation may be besides."""

    head_dim: int = 0  # 0: not known here, so that longrope cannot be read
    share: float | None = None  # of a head, where the configuration does not say; None: heads turn whole
    own_keys: frozenset[str] = frozenset()  # of its map, that the family reads itself


WHOLE = Turning()


def read_rotation(config: Fields, turning: Turning = WHOLE, theta: float = THETA) -> Rotation:
    """The one rotation of all layers; theta: where the configuration does not say."""
    theta = config.positive("rope_theta", theta)
    if config.get("rope_parameters") is None:
        return older_rotation(config, theta, turning)
    rotation = rotation_at(config, "rope_parameters", theta, turning)
    refuse_other(config, rotation, turning)
    return rotation


def read_rotations(
    config: Fields, theta: float, local_theta: float, *, turning: Turning = WHOLE
) -> tuple[Rotation, Rotation]:  # fmt: skip
    """Of layers without a window, and of those with one, which older files do not scale; thetas: where the
    configuration does not say; turning: of the first."""
    if (given := config.get("rope_parameters")) is None:
        return older_rotation(config, theta), Rotation(theta=local_theta)
    if not isinstance(given, dict):
        raise config.bad("rope_parameters", "must be a map")
    kinds = Fields(f"{config.origin}: rope_parameters", given)
    full = rotation_at(kinds, "full_attention", theta, turning)
    local = rotation_at(kinds, "sliding_attention", local_theta)
    refuse_other(config, full)
    return full, local


def rotation_map(config: Fields) -> Fields:
    """The settings of a family whose rotation is never the plain one."""
    key = "rope_scaling" if config.get("rope_parameters") is None else "rope_parameters"
    values = config.get(key)
    if not isinstance(values, dict):
        raise config.bad(key, "must be a map, with rope_type and what belongs to it")
    return Fields(f"{config.origin}: {key}", values)


def older_rotation(config: Fields, theta: float, turning: Turning = WHOLE) -> Rotation:
    """From rope_scaling, where it is given."""
    if config.get("rope_scaling") is None:
        return Rotation(theta=theta, num_turned=_num_turned(config, config, turning))
    return rotation_at(config, "rope_scaling", theta, turning)


def refuse_other(config: Fields, rotation: Rotation, turning: Turning = WHOLE) -> None:
    """The old keys beside rope_parameters, which said this rotation, must say the same."""
    refuse_other_theta(config, "rope_theta", rotation)
    if config.get("rope_scaling") is not None and older_rotation(config, rotation.theta, turning) != rotation:
        raise config.bad("rope_scaling", "must be null, or say the same as rope_parameters")


def refuse_other_theta(config: Fields, key: str, rotation: Rotation) -> None:
    if config.positive(key, rotation.theta) != rotation.theta:
        raise config.bad(key, f"must be null, or {rotation.theta:g} as in rope_parameters")


def rotation_at(config: Fields, name: str, theta: float | None = None, turning: Turning = WHOLE) -> Rotation:
    """From the map of this name; theta: where the map does not say."""
    values = config.get(name)
    if not isinstance(values, dict):
        raise config.bad(name, "must be a map")
    rope = Fields(f"{config.origin}: {name}", values)
    kind = _kind(rope, values, turning)
    if kind == "proportional":
        return Rotation(theta=rope.positive("rope_theta", theta), num_pairs=_num_pairs(rope, turning))
    num_turned = _num_turned(config, rope, turning)
    scaling = _scaling(config, rope, kind, (num_turned or turning.head_dim) // 2)
    if (theta := rope.positive("rope_theta", theta)) <= 1.0 and kind == "yarn":
        raise rope.bad("rope_theta", "must be above 1")
    return Rotation(theta=theta, scaling=scaling, num_turned=num_turned)


def _kind(rope: Fields, values: dict[str, Any], turning: Turning) -> str:
    kind = values.get("rope_type", values.get("type"))
    kind = "default" if kind is None else kind
    kind = _OLDER_KINDS.get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, str) or kind not in _KEYS:
        raise InvalidConfig(f"{rope.origin}: rope_type {kind!r} is not supported; supported: {', '.join(_KEYS)}")
    unknown = sorted(str(key) for key in values if key not in _KEYS[kind] | turning.own_keys)
    if unknown:
        raise InvalidConfig(f"{rope.origin}: unknown key {unknown[0]!r} for rope_type {kind!r}")
    return kind


def _num_pairs(rope: Fields, turning: Turning) -> int:
    """Of a head's pairs; 0: all."""
    if not turning.head_dim:
        raise InvalidConfig(f"{rope.origin}: rope_type 'proportional' is not supported here")
    share = rope.number("partial_rotary_factor", 1.0, most=1.0)
    if not (count := int(share * turning.head_dim // 2)):
        raise rope.bad("partial_rotary_factor", f"must turn a pair of a head of {turning.head_dim}")
    return count if count < turning.head_dim // 2 else 0


def _num_turned(config: Fields, rope: Fields, turning: Turning) -> int:
    """Values of a head; 0: all."""
    default = 1.0 if turning.share is None else turning.share
    share = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", default))
    if turning.share is None and share != 1.0:
        raise (rope if rope.get("partial_rotary_factor") else config).bad(
            "partial_rotary_factor", "must be 1 (this family's heads turn whole)"
        )
    num_turned = int(turning.head_dim * share)
    if share > 1.0 or num_turned % 2 or (turning.share is not None and not num_turned):
        raise (rope if rope.get("partial_rotary_factor") else config).bad(
            "partial_rotary_factor", f"must give an even part of a head of {turning.head_dim}"
        )
    return num_turned if num_turned < turning.head_dim else 0


def _scaling(config: Fields, rope: Fields, kind: str, num_pairs: int) -> RopeScaling | None:
    if kind == "default":
        return None
    if kind == "longrope":
        return _longrope(config, rope, num_pairs)
    factor = rope.number("factor", least=1.0)
    if kind == "linear":
        return RopeScaling(kind=kind, factor=factor)
    if kind == "yarn":
        return _yarn(rope, factor)
    low, high = rope.positive("low_freq_factor"), rope.positive("high_freq_factor")
    if low >= high:
        raise rope.bad("high_freq_factor", "must be above low_freq_factor")
    original = rope.size("original_max_position_embeddings")
    return RopeScaling(kind=kind, factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_len=original)


def _yarn(rope: Fields, factor: float) -> RopeScaling:
    fast, slow = rope.positive("beta_fast", 32.0), rope.positive("beta_slow", 1.0)
    if fast <= slow:
        raise rope.bad("beta_fast", f"must be above beta_slow {slow:g}")
    mscale, mscale_all = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    if mscale and mscale_all:
        length = yarn_length(factor, mscale) / yarn_length(factor, mscale_all)
    else:
        length = yarn_length(factor)
    return RopeScaling(
        kind="yarn", factor=factor, original_max_len=rope.size("original_max_position_embeddings"),
        beta_fast=fast, beta_slow=slow, is_truncated=rope.flag("truncate", True),
        attention_factor=rope.positive("attention_factor", length),
    )  # fmt: skip


def yarn_length(factor: float, scale: float = 1.0) -> float:
    """By which YaRN lengthens queries and keys."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def _longrope(config: Fields, rope: Fields, num_pairs: int) -> RopeScaling:
    key = "original_max_position_embeddings"
    fields = rope if config.get(key) is None else config
    if (original := fields.size(key)) < 2:
        raise fields.bad(key, "must be above 1")
    factor = rope.positive("factor", config.size("max_position_embeddings") / original)
    return RopeScaling(
        kind="longrope", original_max_len=original, short_factors=_factors(rope, "short_factor", num_pairs),
        long_factors=_factors(rope, "long_factor", num_pairs),
        attention_factor=rope.positive("attention_factor", longrope_length(factor, original)),
    )  # fmt: skip


def longrope_length(factor: float, original: int) -> float:
    """By which longrope lengthens queries and keys."""
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1.0 else 1.0


def _factors(rope: Fields, key: str, num_pairs: int) -> tuple[float, ...]:
    values = rope.get(key)
    is_list = isinstance(values, list) and all(type(value) in (int, float) and 0 < value < 1e9 for value in values)
    if not is_list or len(values) != num_pairs:
        raise rope.bad(key, f"must be a list of {num_pairs} numbers above 0")
    return tuple(map(float, values))
