"""Weights in fp8 (e4m3): a row is kept as bytes and one scale, which makes its largest number fp8's largest.

    about matrix[o, i] = bytes[o, i] * scales[o]        448 * scales[o] = max of |matrix[o, :]|

Activations are rounded the same way, row by row, so that the product is one of bytes; its numbers are then scaled by
row and by output. A single row is not rounded: there time goes into reading the weights.

Always: bytes and scale of a row depend on that row alone. Knows nothing of layers.
"""

import torch
from torch import Tensor

from chairlift.runner.cuda.kernels import round_rows_kernel, whole_row
from chairlift.runner.cuda.products.one_row import is_one_row, one_row
from chairlift.runner.ops import Weight

E4M3 = torch.float8_e4m3fn


def round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [R, C] -> e4m3 [R, C], float32 [R, 1]"""
    num_rows, width = x.shape
    out = torch.empty(num_rows, width, dtype=E4M3, device=x.device)
    scales = torch.empty(num_rows, 1, dtype=torch.float32, device=x.device)
    round_rows_kernel[(num_rows,)](x, out, scales, width, **whole_row(width))
    return out, scales


class Fp8Weight:
    """Of a matrix [out, in] with dimensions that are multiples of 16; products are bfloat16."""

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        self._keep(*round_rows(matrix.contiguous()), bias)

    def _keep(self, rows: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        self._matrix, self._bias = rows, bias
        self._scales = scales.view(1, -1)  # [1, out]

    def linear(self, x: Tensor) -> Tensor:
        if is_one_row(x):
            return one_row(x, self._matrix, self._bias, x.dtype, self._scales)
        rows, scales = round_rows(x)
        out = torch._scaled_mm(
            rows, self._matrix.t(), scales, self._scales, out_dtype=torch.bfloat16, use_fast_accum=True
        )
        return out if self._bias is None else out.add_(self._bias)

    def logits(self, x: Tensor) -> Tensor:
        return self.linear(x).float()

    def rows(self, ids: Tensor) -> Tensor:
        raise RuntimeError("an embedding is not kept in fp8")


class StoredFp8Weight(Fp8Weight):
    """Of a file's own bytes and scales. What must not be rounded goes by its numbers."""

    def __init__(self, matrix: Tensor, scales: Tensor, bias: Tensor | None, exactly: Weight) -> None:
        """exactly: the same bytes, widened."""
        self._keep(matrix, scales, bias)
        self._exactly = exactly

    def logits(self, x: Tensor) -> Tensor:
        return self._exactly.logits(x)

    def rows(self, ids: Tensor) -> Tensor:
        return self._exactly.rows(ids)
