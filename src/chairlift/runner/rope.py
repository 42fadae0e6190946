"""The rotary table: the angles by which pairs of a head's values turn at each position.

rotation[position] = cos(position * f_0 .. f_{d/2-1}) | sin(position * f_0 .. f_{d/2-1})      [head_dim]

Pairs that do not turn have frequency 0; some scalings also lengthen those that do. Some models lengthen queries by
their position besides.
"""

import math

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import QueryGrowth, RopeScaling, Rotation


def rotation_table(rotation: Rotation | None, head_dim: int, max_len: int, dtype: torch.dtype) -> Tensor:
    """[max_len, head_dim]; without a rotation nothing turns. max_len: that is served, by which longrope chooses."""
    frequencies, lengths = torch.zeros(head_dim // 2, dtype=dtype), torch.ones(head_dim // 2, dtype=dtype)
    if rotation is not None:
        turned = _frequencies(rotation, rotation.num_turned or head_dim, max_len, dtype)
        frequencies[: len(turned)] = turned
        frequencies[rotation.num_pairs or len(turned) :] = 0.0
        lengths[: len(turned)] = rotation.scaling.attention_factor if rotation.scaling else 1.0
    angles = torch.arange(max_len, dtype=dtype)[:, None] * frequencies
    return torch.cat((angles.cos() * lengths, angles.sin() * lengths), dim=-1)


def query_factors(growth: QueryGrowth | None, max_len: int, dtype: torch.dtype) -> Tensor | None:
    """[max_len]; None: all are 1"""
    if growth is None or max_len <= growth.length:
        return None
    return 1 + growth.beta * torch.log1p((torch.arange(max_len) // growth.length).to(dtype))


def _frequencies(rotation: Rotation, dim: int, max_len: int, dtype: torch.dtype) -> Tensor:
    """[dim / 2]"""
    exponents = torch.arange(0, dim, 2, dtype=torch.int64).to(dtype) / dim
    plain, scaling = 1.0 / (rotation.theta**exponents), rotation.scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(plain, scaling)
    if scaling.kind == "yarn":
        return _yarn(plain, scaling, rotation.theta)
    if scaling.kind == "longrope":
        is_long = max_len > scaling.original_max_len
        return plain / torch.tensor(scaling.long_factors if is_long else scaling.short_factors, dtype=dtype)
    raise InvalidConfig(f"rope scaling {scaling.kind!r} is not supported")


def _llama3(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """High frequencies stay, low ones are stretched, those between are blended."""
    turns = plain * scaling.original_max_len / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (keep + (1 - keep) / scaling.factor)


def _yarn(plain: Tensor, scaling: RopeScaling, theta: float) -> Tensor:
    """As llama3, blended evenly over the pairs between."""
    half = len(plain)

    def pair(turns: float) -> float:
        """The pair that makes so many turns in the original length."""
        return half * math.log(scaling.original_max_len / (turns * 2 * math.pi)) / math.log(theta)

    first, last = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.is_truncated:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * half - 1)
    last += 0.001 if first == last else 0.0
    stretched = ((torch.arange(half, dtype=plain.dtype) - first) / (last - first)).clamp(0, 1)
    return plain * (1 - stretched + stretched / scaling.factor)
