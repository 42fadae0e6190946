"""Matrix products of a few rows in Triton: time goes into reading the weight once, which general products do not do at
the speed of memory.

A program has a few outputs and walks their weights in long stretches; the sums of a stretch stay apart until the end.
Launched early (see launch.py), it reads weights while the kernel before it is still finishing.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

MAX_ROWS = 4  # beyond, the arithmetic of plain multiplications takes longer than the reading
_OUTPUTS = 2
_STRETCH = 2048
_DTYPES = (torch.bfloat16, torch.float16)


@triton.jit
def few_rows_kernel(
    x, weight, bias, out, num_outputs,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr, HAS_BIAS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """x [ROWS, WIDTH], weight [num_outputs, WIDTH] -> out [ROWS, num_outputs]"""
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = (outputs < num_outputs)[:, None]
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, STRETCH)
    place = weight + outputs[:, None].to(tl.int64) * WIDTH
    first = tl.load(
        place + columns[None, :], mask=is_output & (columns < WIDTH)[None, :], other=0.0, eviction_policy="evict_first"
    )
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    values = tl.load(x + rows[:, None] * WIDTH + columns[None, :], mask=(columns < WIDTH)[None, :], other=0.0)
    sums = values.to(tl.float32)[:, None, :] * first.to(tl.float32)[None, :, :]  # [ROWS, OUTPUTS, STRETCH]
    for low in tl.static_range(STRETCH, WIDTH, STRETCH):
        is_column = (low + columns < WIDTH)[None, :]
        part = tl.load(
            place + low + columns[None, :], mask=is_output & is_column, other=0.0, eviction_policy="evict_first"
        )
        values = tl.load(x + rows[:, None] * WIDTH + low + columns[None, :], mask=is_column, other=0.0)
        sums += values.to(tl.float32)[:, None, :] * part.to(tl.float32)[None, :, :]
    total = tl.sum(sums, axis=2)  # [ROWS, OUTPUTS]
    if HAS_BIAS:
        total += tl.load(bias + outputs, mask=outputs < num_outputs, other=0.0).to(tl.float32)[None, :]
    target = out + rows[:, None] * num_outputs + outputs[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=(outputs < num_outputs)[None, :])


def can_multiply(x: Tensor, matrix: Tensor) -> bool:
    return len(x) in (1, 2, 4) and x.dtype in _DTYPES and matrix.dtype is x.dtype and x.is_contiguous()


def few_rows(x: Tensor, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, early: dict[str, bool]) -> Tensor:
    """x [T, in], matrix [out, in] -> [T, out], of the given type."""
    num_rows, width = x.shape
    num_outputs = len(matrix)
    out = torch.empty(num_rows, num_outputs, dtype=dtype, device=x.device)
    stretch = min(_STRETCH // num_rows, triton.next_power_of_2(width))
    few_rows_kernel[(triton.cdiv(num_outputs, _OUTPUTS),)](
        x, matrix, bias, out, num_outputs,
        WIDTH=width, ROWS=num_rows, OUTPUTS=_OUTPUTS, STRETCH=stretch, HAS_BIAS=bias is not None, num_warps=4, **early,
    )  # fmt: skip
    return out
