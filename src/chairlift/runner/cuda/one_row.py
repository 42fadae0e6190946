"""The matrix product of a single row in Triton: time goes into reading the weight once, which general products do not
do at the speed of memory.

A program has a few outputs and walks their weights in long stretches; the sums of a stretch stay apart until the end.
As every program sees the whole row, it can add the residual and take the norm on the way, and apply the activation to
pairs of outputs: three kernels less a layer.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_DTYPES = (torch.bfloat16, torch.float16)
_OUTPUTS = 2  # of a program
_GATED_OUTPUTS = 4  # rows of the weight; two outputs
_WARPS = 4


@triton.jit
def one_row_kernel(
    x, residual, gain, weight, scales, bias, out, summed, num_rows, eps,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr, HAS_NORM: tl.constexpr, IS_GATED: tl.constexpr,
    HAS_SCALES: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """x, residual, gain, summed [WIDTH], weight [num_rows, WIDTH], scales, bias [num_rows] -> out [num_rows], or half
    as many where gated."""
    program = tl.program_id(0)
    members = tl.arange(0, OUTPUTS)
    if IS_GATED:  # a gate and its partner side by side
        rows = program * (OUTPUTS // 2) + members // 2
        is_row = rows < num_rows // 2
        rows += members % 2 * (num_rows // 2)
    else:
        rows = program * OUTPUTS + members
        is_row = rows < num_rows
    columns = tl.arange(0, STRETCH)
    place = weight + rows[:, None].to(tl.int64) * WIDTH + columns[None, :]
    mask = is_row[:, None] & (columns < WIDTH)[None, :]
    part = tl.load(place, mask=mask, other=0.0, eviction_policy="evict_first")  # [OUTPUTS, STRETCH]
    values, squares = _values(x, residual, gain, summed, columns, program, WIDTH, HAS_NORM)
    sums = part.to(tl.float32) * values[None, :]
    for low in tl.static_range(STRETCH, WIDTH, STRETCH):
        mask = is_row[:, None] & (low + columns < WIDTH)[None, :]
        part = tl.load(place + low, mask=mask, other=0.0, eviction_policy="evict_first")
        values, more = _values(x, residual, gain, summed, low + columns, program, WIDTH, HAS_NORM)
        sums += part.to(tl.float32) * values[None, :]
        squares += more
    total = tl.sum(sums, axis=1)
    if HAS_NORM:
        total *= tl.rsqrt(tl.sum(squares, axis=0) / WIDTH + eps)
    if HAS_SCALES:
        total *= tl.load(scales + rows, mask=is_row, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias + rows, mask=is_row, other=0.0).to(tl.float32)
    if IS_GATED:
        gate, up = tl.split(tl.reshape(total, [OUTPUTS // 2, 2]))
        units = program * (OUTPUTS // 2) + tl.arange(0, OUTPUTS // 2)
        value = gate / (1.0 + tl.exp(-gate)) * up
        tl.store(out + units, value.to(out.dtype.element_ty), mask=units < num_rows // 2)
    else:
        tl.store(out + rows, total.to(out.dtype.element_ty), mask=is_row)


@triton.jit
def _values(x, residual, gain, summed, columns, program, WIDTH: tl.constexpr, HAS_NORM: tl.constexpr):
    """What the weights of some columns are multiplied by, and the squares that the norm sums."""
    mask = columns < WIDTH
    values = tl.load(x + columns, mask=mask, other=0.0)
    if HAS_NORM:
        more = tl.load(residual + columns, mask=mask, other=0.0)
        values = (values.to(tl.float32) + more.to(tl.float32)).to(values.dtype)
        if program == 0:
            tl.store(summed + columns, values, mask=mask)
        values = values.to(tl.float32)
        squares = values * values
        values *= tl.load(gain + columns, mask=mask, other=0.0).to(tl.float32)
    else:
        values = values.to(tl.float32)
        squares = values
    return values, squares


def is_one_row(x: Tensor) -> bool:
    return len(x) == 1 and x.dtype in _DTYPES


def one_row(x: Tensor, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, scales: Tensor | None = None) -> Tensor:
    """x [1, in], matrix [out, in] -> [1, out], of the given type; each output times its scale, where there are any."""
    out = torch.empty(1, len(matrix), dtype=dtype, device=x.device)
    _launch(x, None, None, 0.0, matrix, scales, bias, out, None, _OUTPUTS, is_gated=False)
    return out


def one_row_normed(
    x: Tensor, residual: Tensor, gain: Tensor, eps: float, matrix: Tensor, scales: Tensor | None, bias: Tensor | None,
    is_gated: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(matrix times norm(x + residual), x + residual); where gated, silu(first half) * second half of the product."""
    out = torch.empty(1, len(matrix) // (2 if is_gated else 1), dtype=x.dtype, device=x.device)
    summed = torch.empty_like(residual)
    outputs = _GATED_OUTPUTS if is_gated else _OUTPUTS
    _launch(x, residual, gain, eps, matrix, scales, bias, out, summed, outputs, is_gated)
    return out, summed


def _launch(
    x: Tensor, residual: Tensor | None, gain: Tensor | None, eps: float, matrix: Tensor, scales: Tensor | None,
    bias: Tensor | None, out: Tensor, summed: Tensor | None, outputs: int, is_gated: bool,
) -> None:  # fmt: skip
    num_rows, width = matrix.shape
    stretch = 2048 if width % 2048 == 0 else min(1024, triton.next_power_of_2(width))
    one_row_kernel[(triton.cdiv(num_rows, outputs),)](
        x, residual, gain, matrix, scales, bias, out, summed, num_rows, eps,
        WIDTH=width, OUTPUTS=outputs, STRETCH=stretch, HAS_NORM=gain is not None, IS_GATED=is_gated,
        HAS_SCALES=scales is not None, HAS_BIAS=bias is not None, num_warps=_WARPS,
    )  # fmt: skip
