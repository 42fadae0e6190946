"""Synthetic numbers for trials of products: every exact sum is zero, so a product's output is its rounding alone.

Another order of a sum of ordinary numbers shows in the last bits of float32, and in one of thousands of outputs in
bfloat16. Here those bits are all that is left, and most outputs show them in any number type:

    inputs     2.1   0.3   1     2.1   0     0.3        each column has a partner with the same inputs
    matrix     a     b     c    -a     d    -b          and opposite weights, at random
    bias                  -c

Knows nothing of the products.
"""

import torch
from torch import Tensor

ALIGNMENT = 64  # of memory, in bytes; a library may depend on it
_DISTINCT = 64  # outputs; the rest repeat them: drawing a vocabulary takes a second
_MAX_EXPONENT = 8  # of inputs: small ones lose bits beside large ones; float16 still holds every partial sum
_SCALE = 0.25  # of weights


def cancelling(
    shape: torch.Size, dtype: torch.dtype, offset: int, has_bias: bool, num_rows: int
) -> tuple[Tensor, Tensor | None, Tensor]:
    """A matrix [out, in], its bias [out] and inputs [rows, in], the same at every call. offset: of the matrix, in bytes
    beyond a multiple of `ALIGNMENT`."""
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
    matrix = _placed(shape, dtype, offset)
    torch.index_select(weights.to(dtype), 0, torch.arange(num_outputs) % _DISTINCT, out=matrix)
    return matrix, -matrix[:, rest[0]] if has_bias else None, x.to(dtype)


def _placed(shape: torch.Size, dtype: torch.dtype, offset: int) -> Tensor:
    room = torch.empty(shape.numel() + ALIGNMENT // dtype.itemsize, dtype=dtype)
    first = (offset - room.data_ptr()) % ALIGNMENT // dtype.itemsize
    return room[first : first + shape.numel()].view(shape)
