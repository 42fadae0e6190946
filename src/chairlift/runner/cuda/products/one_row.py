"""Launches the matrix product of a single row, which reads the weight at the speed of memory."""

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.products.one_row_kernel import gated_kernel, one_row_kernel

_DTYPES = (torch.bfloat16, torch.float16)
LINES = 2  # of a weight, of a program
# Chosen by measuring on an H200: whole lines while registers hold them, and stretches that leave little of the last
# one empty.
_WHOLE, _STRETCH = 8192, 1024  # columns


def is_one_row(x: Tensor) -> bool:
    return len(x) == 1 and x.dtype in _DTYPES


def one_row(
    x: Tensor, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, scales: Tensor | None = None,
    activation: str = "", times: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """x [1, in], matrix [out, in] -> [1, out], of the given type; each output times its scale, where there are any;
    with an activation: activation(product) * times [1, out]."""
    num_outputs, width = matrix.shape
    out = torch.empty(1, num_outputs, dtype=dtype, device=x.device)
    one_row_kernel[(triton.cdiv(num_outputs, LINES),)](
        x, matrix, scales, bias, times, out, num_outputs,
        WIDTH=width, OUTPUTS=LINES, STRETCH=stretch(width),
        HAS_SCALES=scales is not None, HAS_BIAS=bias is not None, ACTIVATION=activation, num_warps=4, **dependent(True),
    )  # fmt: skip
    return out


def gated(x: Tensor, matrix: Tensor, activation: str) -> Tensor:
    """x [1, in], matrix [2 * out, in] -> activation(first half of the product) * second half, [1, out]"""
    num_outputs, width = len(matrix) // 2, x.shape[1]
    out = torch.empty(1, num_outputs, dtype=x.dtype, device=x.device)
    gated_kernel[(triton.cdiv(num_outputs, LINES // 2),)](
        x, matrix, out, num_outputs, WIDTH=width, OUTPUTS=LINES // 2, STRETCH=stretch(width), ACTIVATION=activation,
        num_warps=4, **dependent(True),
    )  # fmt: skip
    return out


def stretch(width: int) -> int:
    """Columns that a program asks for at once."""
    return triton.next_power_of_2(width) if width <= _WHOLE else _STRETCH
