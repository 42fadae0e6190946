"""The matrix product of a single row in Triton.

A program has some outputs and walks their weights in long stretches; the sums of a stretch stay apart until the end.
Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl


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
