"""The matrix product of a single row in Triton: time goes into reading the weight once, which general products do not
do at the speed of memory.

A program has two outputs and walks their weights in long stretches; the sums of a stretch stay apart until the end.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_DTYPES = (torch.bfloat16, torch.float16)
_OUTPUTS = 2  # of a program


@triton.jit
def one_row_kernel(
    x, weight, scales, bias, out, num_outputs,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr, HAS_SCALES: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """x [WIDTH], weight [num_outputs, WIDTH], scales, bias [num_outputs] -> out [num_outputs]"""
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = outputs < num_outputs
    columns = tl.arange(0, STRETCH)
    place = weight + outputs[:, None].to(tl.int64) * WIDTH + columns[None, :]
    sums = tl.zeros([OUTPUTS, STRETCH], dtype=tl.float32)
    for low in tl.static_range(0, WIDTH, STRETCH):
        is_column = low + columns < WIDTH
        mask = is_output[:, None] & is_column[None, :]
        part = tl.load(place + low, mask=mask, other=0.0, eviction_policy="evict_first")  # [OUTPUTS, STRETCH]
        values = tl.load(x + low + columns, mask=is_column, other=0.0)
        sums += part.to(tl.float32) * values.to(tl.float32)[None, :]
    total = tl.sum(sums, axis=1)
    if HAS_SCALES:
        total *= tl.load(scales + outputs, mask=is_output, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias + outputs, mask=is_output, other=0.0).to(tl.float32)
    tl.store(out + outputs, total.to(out.dtype.element_ty), mask=is_output)


def is_one_row(x: Tensor) -> bool:
    return len(x) == 1 and x.dtype in _DTYPES


def one_row(x: Tensor, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, scales: Tensor | None = None) -> Tensor:
    """x [1, in], matrix [out, in] -> [1, out], of the given type; each output times its scale, where there are any."""
    num_outputs, width = matrix.shape
    out = torch.empty(1, num_outputs, dtype=dtype, device=x.device)
    stretch = 2048 if width % 2048 == 0 else min(1024, triton.next_power_of_2(width))
    one_row_kernel[(triton.cdiv(num_outputs, _OUTPUTS),)](
        x, matrix, scales, bias, out, num_outputs,
        WIDTH=width, OUTPUTS=_OUTPUTS, STRETCH=stretch, HAS_SCALES=scales is not None, HAS_BIAS=bias is not None,
        num_warps=4,
    )  # fmt: skip
    return out
