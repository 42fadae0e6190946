"""The product of a single row together with what its adapter adds, in Triton.

    low       S = A x: a program for a rank of a part, which has asked for its whole line of A before x is there
    adapted   W x + B S: a program for some outputs. Its first weights are asked for before `low` has ended, and B and S
              after all others: what has to wait for the slot's number holds nothing up.

tiles and bank are as in `kernels.py`; the row is that of the first tile. Without torch: kernels are compiled by
processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.adapters.kernels import RANKS
from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import activated
from chairlift.runner.cuda.products.one_row_kernel import first_stretch, multiply


@triton.jit
def low_row_kernel(
    x, tiles, bank, low, slot_size, down_units, PARTS: tl.constexpr, WIDTH: tl.constexpr, IS_DEPENDENT: tl.constexpr
):  # fmt: skip
    """x [WIDTH] -> low [PARTS * rank]"""
    launch_dependents(IS_DEPENDENT)
    slot, num_blocks = _read_slot(tiles)
    rank = num_blocks * RANKS
    line = tl.program_id(0)
    columns = tl.arange(0, triton.next_power_of_2(WIDTH))
    mask = (columns < WIDTH) & (line < PARTS * rank)
    down = bank + slot * slot_size + down_units * rank.to(tl.int64) + line.to(tl.int64) * WIDTH
    weights = tl.load(down + columns, mask=mask, other=0.0)
    wait_for_previous(IS_DEPENDENT)
    values = tl.load(x + columns, mask=mask, other=0.0)
    total = tl.sum(weights.to(tl.float32) * values.to(tl.float32))
    tl.store(low + line, total, mask=line < PARTS * rank)


@triton.jit
def adapted_row_kernel(
    x, weight, bias, tiles, bank, low, out, num_outputs, slot_size, up_units,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, WIDTH: tl.constexpr, STRETCH: tl.constexpr,
    LINES: tl.constexpr, ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [WIDTH], weight [FIRST + SECOND + THIRD, WIDTH], of up to three parts -> out [num_outputs]. LINES: of the
    weight, of a program. ACTIVATION, unless it is empty: out is activation(first half of the sum) * second half."""
    program = tl.program_id(0)
    lines = tl.arange(0, LINES)
    if ACTIVATION == "":
        places = program * LINES + lines
        is_line = places < num_outputs
    else:
        places = program * (LINES // 2) + lines // 2 + lines % 2 * num_outputs  # the two of an output side by side
        is_line = places - lines % 2 * num_outputs < num_outputs
    launch_dependents(IS_DEPENDENT)
    weights = first_stretch(weight, places, is_line, WIDTH, STRETCH)
    slot, num_blocks = _read_slot(tiles)
    wait_for_previous(IS_DEPENDENT)
    sums = multiply(x, weight, places, is_line, weights, WIDTH, STRETCH)
    rank = num_blocks * RANKS
    part = (places >= FIRST).to(tl.int32) + (places >= FIRST + SECOND).to(tl.int32)
    ranks = tl.arange(0, RANKS)[None, :]
    up = bank + slot * slot_size + (up_units + places[:, None].to(tl.int64)) * rank + ranks
    lows = low + part[:, None] * rank + ranks
    has_first = is_line[:, None] & (num_blocks > 0)  # without a loop, before which all others would have to arrive
    added = tl.load(lows, mask=has_first, other=0.0) * tl.load(up, mask=has_first, other=0.0).to(tl.float32)
    total = tl.sum(sums, axis=1) + tl.sum(added, axis=1)
    for block in range(1, num_blocks):
        factors = tl.load(up + block * RANKS, mask=is_line[:, None], other=0.0).to(tl.float32)
        total += tl.sum(tl.load(lows + block * RANKS, mask=is_line[:, None], other=0.0) * factors, axis=1)
    if HAS_BIAS:
        total += tl.load(bias + places, mask=is_line, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    if ACTIVATION == "":
        tl.store(out + places, total.to(kind), mask=is_line)
    else:
        # Rounded before they are multiplied, as where the products are kept.
        gate, rest = tl.split(tl.reshape(total.to(kind).to(tl.float32), [LINES // 2, 2]))
        outputs = program * (LINES // 2) + tl.arange(0, LINES // 2)
        tl.store(out + outputs, activated(gate, rest, ACTIVATION).to(kind), mask=outputs < num_outputs)


@triton.jit
def _read_slot(tiles):
    """-> the row's slot and its blocks of ranks, 0 where it has no adapter"""
    slot = tl.load(tiles).to(tl.int64)
    return tl.maximum(slot, 0), tl.where((slot >= 0) & (tl.load(tiles + 2) >= 0), tl.load(tiles + 1), 0)
