"""The experts of a few rows in Triton: the weights of the chosen experts, and no others, at the speed of memory.

A program walks some outputs of one expert, or of each expert that a row chose, in order. Without torch: kernels are
compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.experts.mxfp4 import GROUP, widened_by_two
from chairlift.runner.cuda.kernels import activated


@triton.jit
def few_gated_kernel(
    x, weight, scales, bias, ids, out, num_outputs,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr, CHOSEN: tl.constexpr, ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr, IS_MXFP4: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [T, WIDTH], weight [experts, 2 * num_outputs, WIDTH], ids [T, CHOSEN] -> out [T * CHOSEN, num_outputs]"""
    pair = tl.program_id(0).to(tl.int64)
    lines = tl.arange(0, 2 * OUTPUTS)  # the two of an output side by side
    outputs = tl.program_id(1) * OUTPUTS + lines // 2
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    expert = tl.load(ids + pair).to(tl.int64)
    places = expert * 2 * num_outputs + lines % 2 * num_outputs + outputs
    is_output = outputs < num_outputs
    row = x + pair // CHOSEN * WIDTH
    total = tl.sum(
        _products(row, weight, scales, places, is_output, 1.0, WIDTH, 2 * OUTPUTS, STRETCH, IS_MXFP4), axis=1
    )
    if HAS_BIAS:
        total += tl.load(bias + places, mask=is_output, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    # Rounded before they are multiplied, as where the products are kept.
    gate, up = tl.split(tl.reshape(total.to(kind).to(tl.float32), [OUTPUTS, 2]))
    outputs = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    target = out + pair * num_outputs + outputs
    tl.store(target, activated(gate, up, ACTIVATION).to(kind), mask=outputs < num_outputs)


@triton.jit
def few_down_kernel(
    x, weight, scales, bias, ids, weights, shared, out, num_outputs,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, STRETCH: tl.constexpr, CHOSEN: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_SHARED: tl.constexpr, IS_MXFP4: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [T * CHOSEN, WIDTH], weight [experts, num_outputs, WIDTH] -> out [T, num_outputs], added up over the choices"""
    row = tl.program_id(0).to(tl.int64)
    outputs = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = outputs < num_outputs
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    BLOCK: tl.constexpr = STRETCH // 2 if IS_MXFP4 else STRETCH
    sums = tl.zeros([OUTPUTS, BLOCK], dtype=tl.float32)
    more = tl.zeros([OUTPUTS], dtype=tl.float32)
    if HAS_SHARED:
        more += tl.load(shared + row * num_outputs + outputs, mask=is_output, other=0.0).to(tl.float32)
    for choice in tl.static_range(CHOSEN):
        pair = row * CHOSEN + choice
        expert = tl.load(ids + pair).to(tl.int64)
        share = tl.load(weights + pair)
        places = expert * num_outputs + outputs
        sums += _products(x + pair * WIDTH, weight, scales, places, is_output, share, WIDTH, OUTPUTS, STRETCH, IS_MXFP4)
        if HAS_BIAS:
            more += share * tl.load(bias + places, mask=is_output, other=0.0).to(tl.float32)
    total = tl.sum(sums, axis=1) + more
    tl.store(out + row * num_outputs + outputs, total.to(out.dtype.element_ty), mask=is_output)


@triton.jit
def _products(
    x, weight, scales, places, is_line, factor,
    WIDTH: tl.constexpr, LINES: tl.constexpr, STRETCH: tl.constexpr, IS_MXFP4: tl.constexpr,
):  # fmt: skip
    """factor * x times lines of the weight, stretches added up -> [LINES, STRETCH], or half as wide of half bytes"""
    if IS_MXFP4:
        GROUPS: tl.constexpr = STRETCH // (2 * GROUP)
        groups, in_group = tl.arange(0, GROUPS), tl.arange(0, GROUP)
        sums = tl.zeros([LINES, GROUPS, GROUP], dtype=tl.float32)
        for low in tl.static_range(0, WIDTH // (2 * GROUP), GROUPS):
            is_group = low + groups < WIDTH // (2 * GROUP)
            place = places[:, None] * (WIDTH // (2 * GROUP)) + (low + groups)[None, :]
            mask = is_line[:, None] & is_group[None, :]
            powers = tl.load(scales + place, mask=mask, other=0)
            packed = tl.load(
                weight + place[:, :, None] * GROUP + in_group[None, None, :], mask=mask[:, :, None], other=0,
                eviction_policy="evict_first",
            )  # fmt: skip
            one, two = widened_by_two(packed, powers)
            values = x + (low + groups)[:, None] * (2 * GROUP) + in_group[None, :]
            first = factor * tl.load(values, mask=is_group[:, None], other=0.0).to(tl.float32)
            second = factor * tl.load(values + GROUP, mask=is_group[:, None], other=0.0).to(tl.float32)
            sums += one.to(tl.float32) * first[None, :, :] + two.to(tl.float32) * second[None, :, :]
        sums = tl.reshape(sums, [LINES, STRETCH // 2])
    else:
        columns = tl.arange(0, STRETCH)
        sums = tl.zeros([LINES, STRETCH], dtype=tl.float32)
        for low in tl.static_range(0, WIDTH, STRETCH):
            is_column = low + columns < WIDTH
            from_weight = weight + places[:, None] * WIDTH + (low + columns)[None, :]
            mask = is_line[:, None] & is_column[None, :]
            part = tl.load(from_weight, mask=mask, other=0.0, eviction_policy="evict_first")
            values = factor * tl.load(x + low + columns, mask=is_column, other=0.0).to(tl.float32)
            sums += part.to(tl.float32) * values[None, :]
    return sums
