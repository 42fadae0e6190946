"""Made-up numbers for trials of products: every exact sum is zero, so what a product gives is its rounding alone.

Sums of ordinary numbers in another order differ in the last bits of float32, and an output in bfloat16 shows that once
in thousands of times. Here nothing is left but those bits, and most outputs show it, in any number type:

    inputs     2.1   0.3   1     2.1   0     0.3        each column has a partner with the same inputs
    matrix     a     b     c    -a     d    -b          and opposite weights; where is drawn
    bias                  -c

Knows nothing of what multiplies them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 64  # of memory, in bytes: a library may take another way from other places
_DISTINCT = 64  # outputs; the rest repeat them, as drawing a whole vocabulary would take a second
_MAX_EXPONENT = 8  # of inputs: small ones lose bits beside large ones; float16 still holds every partial sum
_SCALE = 0.25  # of weights


class Cancelling(NamedTuple):
    matrix: Tensor  # [out, in]
    bias: Tensor | None  # [out]
    x: Tensor  # [rows, in]


def cancelling(shape: torch.Size, dtype: torch.dtype, place: int, has_bias: bool, num_rows: int) -> Cancelling:
    """The same ones at every call; place: where the matrix begins, in bytes beyond a multiple of `ALIGNMENT`."""
    source = torch.Generator().manual_seed(1)
    num_outputs, width = shape
    x = torch.randn((num_rows, width), generator=source, dtype=torch.float64)
    x *= 2.0 ** torch.randint(_MAX_EXPONENT, x.shape, generator=source)
    weights = _SCALE * torch.randn((min(num_outputs, _DISTINCT), width), generator=source, dtype=torch.float64)
    num_pairs = (width - has_bias) // 2
    columns = torch.randperm(width, generator=source)
    firsts, partners, rest = columns.tensor_split((num_pairs, 2 * num_pairs))
    x[:, partners], weights[:, partners] = x[:, firsts], -weights[:, firsts]
    x[:, rest] = 0.0
    if has_bias:
        x[:, rest[0]] = 1.0
    matrix = _placed(shape, dtype, place)
    torch.index_select(weights.to(dtype), 0, torch.arange(num_outputs) % _DISTINCT, out=matrix)
    return Cancelling(matrix, -matrix[:, rest[0]] if has_bias else None, x.to(dtype))


def _placed(shape: torch.Size, dtype: torch.dtype, place: int) -> Tensor:
    room = torch.empty(shape.numel() + ALIGNMENT // dtype.itemsize, dtype=dtype)
    first = (place - room.data_ptr()) % ALIGNMENT // dtype.itemsize
    return room[first : first + shape.numel()].view(shape)
