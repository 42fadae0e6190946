"""Weights of four bits as files have them (MXFP4): groups of 32 along a row with a power of two for each.

blocks   [..., width / 32, 16]   byte i of a group: column 2i in its low half, column 2i + 1 in its high half
scales   [..., width / 32]       the power of two plus 127

GGUF files have both in one: a group is its scale, then sixteen bytes in the order that kernels read (`in_halves`).
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.weights.source import Stored

_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1 = (*_SIZES, *(-size for size in _SIZES))  # what a half byte means
MXFP4 = "MXFP4"
_BIAS = 127
MAX_SCALE = _BIAS + 1  # kernels build larger numbers from a scale's bits; those of weights are below 1


def widened(blocks: Tensor, scales: Tensor) -> Tensor:
    """float32 [..., width]"""
    values = torch.tensor(E2M1, device=blocks.device)
    columns = values[_columns(blocks).int()]  # [..., width / 32, 32]
    return torch.ldexp(columns, (scales.int() - _BIAS)[..., None]).flatten(-2)


def in_halves(blocks: Tensor) -> Tensor:
    """[..., width / 2], as the kernels read them: byte i of a group has columns i and 16 + i."""
    columns = _columns(blocks)
    return (columns[..., :16] | (columns[..., 16:] << 4)).flatten(-2)


def _columns(blocks: Tensor) -> Tensor:
    return torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)


def apart(stored: Stored) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Blocks and scales, checked, and what brings such blocks into the order of the kernels."""
    is_gguf = len(stored.tensors) == 1
    blocks, scales = (stored.tensors[0][..., 1:], stored.tensors[0][..., 0]) if is_gguf else stored.tensors
    if scales.numel() and int(scales.max()) > MAX_SCALE:
        raise InvalidConfig(
            f"{stored.name} has a scale above {2.0 ** (MAX_SCALE - _BIAS):g}, which no weight needs (damaged?)"
        )
    return blocks, scales, partial(Tensor.flatten, start_dim=-2) if is_gguf else in_halves
