"""The matrix product of a single row in Triton.

A program has asked for the weights of its outputs, or for a long stretch of them, before the previous kernel has ended.
Sums of a stretch stay apart until the end.
Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import activated


@triton.jit
def one_row_kernel(
    x, weight, scales, bias, times, out, num_outputs,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr, HAS_SCALES: tl.constexpr, HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [WIDTH], weight [num_outputs, WIDTH], scales, bias [num_outputs] -> out [num_outputs]

    ACTIVATION, unless it is empty: activation(out) * times [num_outputs]"""
    launch_dependents(IS_DEPENDENT)
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = outputs < num_outputs
    weights = first_stretch(weight, outputs, is_output, WIDTH, STRETCH)
    wait_for_previous(IS_DEPENDENT)
    total = tl.sum(multiply(x, weight, outputs, is_output, weights, WIDTH, STRETCH), axis=1)
    if HAS_SCALES:
        total *= tl.load(scales + outputs, mask=is_output, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias + outputs, mask=is_output, other=0.0).to(tl.float32)
    if ACTIVATION != "":
        more = tl.load(times + outputs, mask=is_output, other=0.0).to(tl.float32)
        total = activated(total.to(out.dtype.element_ty).to(tl.float32), more, ACTIVATION)
    tl.store(out + outputs, total.to(out.dtype.element_ty), mask=is_output)


@triton.jit
def gated_kernel(
    x, weight, out, num_outputs,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr, ACTIVATION: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [WIDTH], weight [2 * num_outputs, WIDTH] -> activation(first half of products) * second half [num_outputs]"""
    launch_dependents(IS_DEPENDENT)
    rows = tl.arange(0, 2 * OUTPUTS)  # the two of an output side by side
    outputs = tl.program_id(0) * OUTPUTS + rows // 2
    is_row = outputs < num_outputs
    rows = outputs + rows % 2 * num_outputs
    weights = first_stretch(weight, rows, is_row, WIDTH, STRETCH)
    wait_for_previous(IS_DEPENDENT)
    total = tl.sum(multiply(x, weight, rows, is_row, weights, WIDTH, STRETCH), axis=1)
    kind = out.dtype.element_ty
    # Rounded before they are multiplied, as where the products are kept.
    gate, up = tl.split(tl.reshape(total.to(kind).to(tl.float32), [OUTPUTS, 2]))
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    tl.store(out + outputs, activated(gate, up, ACTIVATION).to(kind), mask=outputs < num_outputs)


@triton.jit
def first_stretch(weight, rows, is_row, WIDTH: tl.constexpr, STRETCH: tl.constexpr):
    """Of some rows of the weight, [rows, STRETCH]"""
    columns = tl.arange(0, STRETCH)[None, :]
    place = weight + rows[:, None].to(tl.int64) * WIDTH + columns
    return tl.load(place, mask=is_row[:, None] & (columns < WIDTH), other=0.0, eviction_policy="evict_first")


@triton.jit
def multiply(x, weight, rows, is_row, first, WIDTH: tl.constexpr, STRETCH: tl.constexpr):
    """x times some rows of the weight, of which the first stretch is there -> [rows, STRETCH], yet to be added up"""
    columns = tl.arange(0, STRETCH)
    place = weight + rows[:, None].to(tl.int64) * WIDTH + columns[None, :]
    values = tl.load(x + columns, mask=columns < WIDTH, other=0.0)
    sums = first.to(tl.float32) * values.to(tl.float32)[None, :]
    for low in tl.static_range(STRETCH, WIDTH, STRETCH):
        is_column = low + columns < WIDTH
        mask = is_row[:, None] & is_column[None, :]
        part = tl.load(place + low, mask=mask, other=0.0, eviction_policy="evict_first")
        values = tl.load(x + low + columns, mask=is_column, other=0.0)
        sums += part.to(tl.float32) * values.to(tl.float32)[None, :]
    return sums
