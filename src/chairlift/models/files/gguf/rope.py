"""Rotary embedding settings from the metadata of a GGUF file, and from its tensors of rotary factors.

rope_freqs stand for Llama-3 scaling in this format, or for pairs that stand still; rope_factors_short and
rope_factors_long for longrope.
"""

import math
import struct
from functools import partial

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.families.rope import yarn_length
from chairlift.models.files.gguf.header import GgufHeader, TensorInfo
from chairlift.models.mixers.attention import RopeScaling, Rotation

_KINDS = ("none", "linear", "yarn", "longrope")
_STILL = struct.unpack("<f", struct.pack("<f", 1e30))[0]  # so slow that it does not turn
_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"


def read_rotation(header: GgufHeader, model: Fields, head_dim: int) -> Rotation:
    theta = model.positive("rope.freq_base", 10000.0)
    num_turned = model.size("rope.dimension_count", head_dim)
    if num_turned > head_dim or num_turned % 2:
        raise model.bad("rope.dimension_count", f"must be even and at most the head size {head_dim}")
    divisors = _divisors(header, num_turned)
    is_plain = num_turned == head_dim and model.get("rope.scaling.type", "none") == "none"
    if is_plain and (count := divisors.count(1.0)) and set(divisors[count:]) == {_STILL}:
        return Rotation(theta=theta, num_pairs=count)
    scaling = _scaling(header, model, theta, num_turned, divisors)
    return Rotation(theta=theta, scaling=scaling, num_turned=num_turned if num_turned < head_dim else 0)


def _scaling(
    header: GgufHeader, model: Fields, theta: float, num_turned: int, divisors: tuple[float, ...]
) -> RopeScaling | None:
    kind = model.values.get("rope.scaling.type", "none")
    if kind not in _KINDS:
        raise InvalidConfig(
            f"{model.origin}.rope.scaling.type {kind!r} is not supported; supported: {', '.join(_KINDS)}"
        )
    if _LONG in header.tensors:
        return _longrope(header, model, num_turned // 2)
    if kind == "longrope":
        raise InvalidConfig(f"{header.path}: tensor {_LONG} is missing")
    baked = _llama3_scaling(header, theta, num_turned, divisors)
    factor = model.number("rope.scaling.factor", model.number("rope.scale_linear", 1.0, least=1.0), least=1.0)
    if kind == "none" or factor == 1.0:
        return baked
    if baked is not None:
        raise InvalidConfig(f"{header.path}: {kind} rope scaling together with rope_freqs.weight is not supported")
    return _yarn(model, factor, theta) if kind == "yarn" else RopeScaling(kind="linear", factor=factor)


def _yarn(model: Fields, factor: float, theta: float) -> RopeScaling:
    if theta <= 1.0:
        raise model.bad("rope.freq_base", "must be above 1")
    fast, slow = model.positive("rope.scaling.yarn_beta_fast", 32.0), model.positive("rope.scaling.yarn_beta_slow", 1.0)
    if fast <= slow:
        raise model.bad("rope.scaling.yarn_beta_fast", f"must be above yarn_beta_slow {slow:g}")
    divisor = model.number("rope.scaling.yarn_log_multiplier", 0.0)
    length = yarn_length(factor) / yarn_length(factor, divisor)
    return RopeScaling(
        kind="yarn", factor=factor, original_max_len=model.size("rope.scaling.original_context_length"),
        beta_fast=fast, beta_slow=slow, attention_factor=model.positive("rope.scaling.yarn_attn_factor", length),
    )  # fmt: skip


def _longrope(header: GgufHeader, model: Fields, num_pairs: int) -> RopeScaling:
    original = model.size("rope.scaling.original_context_length")
    return RopeScaling(
        kind="longrope", original_max_len=original,
        short_factors=_factors(header, _SHORT, num_pairs), long_factors=_factors(header, _LONG, num_pairs),
        attention_factor=model.positive("rope.scaling.attn_factor", 1.0),
    )  # fmt: skip


def _factors(header: GgufHeader, name: str, num_pairs: int) -> tuple[float, ...]:
    tensor = header.tensors.get(name)
    if tensor is None or tensor.type_name != "F32" or tensor.shape != (num_pairs,):
        raise InvalidConfig(f"{header.path}: {name} must be {num_pairs} values of F32")
    factors = _read_floats(header, tensor)
    if not all(0 < factor < 1e9 for factor in factors):
        raise InvalidConfig(f"{header.path}: {name} must hold numbers above 0")
    return factors


def _divisors(header: GgufHeader, num_turned: int) -> tuple[float, ...]:
    """Of the frequencies of pairs; none: the file has none."""
    tensor = header.tensors.get("rope_freqs.weight")
    if tensor is None:
        return ()
    if tensor.type_name != "F32" or tensor.shape != (num_turned // 2,):
        raise InvalidConfig(f"{header.path}: rope_freqs.weight must be {num_turned // 2} values of F32")
    return _read_floats(header, tensor)


def _llama3_scaling(
    header: GgufHeader, theta: float, num_turned: int, divisors: tuple[float, ...]
) -> RopeScaling | None:
    """The Llama-3 scaling, if these are its divisors."""
    if all(divisor == 1.0 for divisor in divisors):
        return None
    # The file keeps only the divisors. Llama 3.1, 3.2 and 3.3 differ in the factor alone, which is the largest one.
    scaling = RopeScaling(kind="llama3", factor=max(divisors))
    is_sane = min(divisors) > 0.99 and max(divisors) < 1e6  # from 1, but for rounding
    expected = _llama3_divisors(scaling, theta, num_turned) if is_sane else []
    if not is_sane or not all(map(partial(math.isclose, rel_tol=1e-3), divisors, expected)):
        raise InvalidConfig(f"{header.path}: rope_freqs.weight is not the Llama-3 scaling; others are not supported")
    return scaling


def _read_floats(header: GgufHeader, tensor: TensorInfo) -> tuple[float, ...]:
    with header.path.open("rb") as file:
        file.seek(tensor.offset)
        return struct.unpack(f"<{tensor.shape[0]}f", file.read(4 * tensor.shape[0]))


def _llama3_divisors(scaling: RopeScaling, theta: float, num_turned: int) -> list[float]:
    divisors = []
    for index in range(0, num_turned, 2):
        turns = scaling.original_max_len / (2 * math.pi * theta ** (index / num_turned))
        span = scaling.high_freq_factor - scaling.low_freq_factor
        smooth = min(max((turns - scaling.low_freq_factor) / span, 0.0), 1.0)
        divisors.append(1.0 / ((1.0 - smooth) / scaling.factor + smooth))
    return divisors
