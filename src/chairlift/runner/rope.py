"""The rotary table: the angles by which pairs of a head's values turn at each position.

rotation[position] = cos(position * f_0 .. f_{d/2-1}) | sin(position * f_0 .. f_{d/2-1})      [head_dim]
"""

import math

import torch
from torch import Tensor

from chairlift.config.model import RopeScaling, Rotation
from chairlift.core.errors import InvalidConfig


def rotation_table(rotation: Rotation | None, head_dim: int, max_len: int, dtype: torch.dtype) -> Tensor:
    """[max_len, head_dim]; without a rotation nothing turns."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(dtype) / head_dim
    frequencies = torch.zeros_like(exponents) if rotation is None else 1.0 / (rotation.theta**exponents)  # [dim / 2]
    if rotation is not None and rotation.scaling is not None:
        frequencies = _scaled(frequencies, rotation.scaling)
    angles = torch.arange(max_len, dtype=dtype)[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def _scaled(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind != "llama3":
        raise InvalidConfig(f"rope scaling {scaling.kind!r} is not supported (supported: llama3, linear)")
    # High frequencies stay, low ones are stretched, those between are blended.
    turns = frequencies * scaling.original_max_len / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (keep + (1 - keep) / scaling.factor)
