"""The product of a single row together with what its adapter adds, in one kernel of Triton.

    programs 0 ...     some ranks of A x each, into `low`, and count themselves
    all others         some outputs of W x each, as in `one_row`; then wait until all of the former are counted, and
                       add B low

The former are few, come first and read as much as the others: nobody waits for long.

Always: `counter` is 0 before a launch. Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.adapters.kernels import RANKS
from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import activated
from chairlift.runner.cuda.one_row.product_kernel import multiply

LINES = tl.constexpr(2)  # of A, of a program


@triton.jit
def adapted_row_kernel(
    x, weight, bias, tiles, blocks, bank, low, counter, out, num_outputs, slot_size, down_units, up_units, num_low,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr,
    STRETCH: tl.constexpr, ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [WIDTH], weight [FIRST + SECOND + THIRD, WIDTH], of up to three parts -> out [num_outputs]; low: float32, of
    all ranks of all parts; num_low: programs for it. ACTIVATION, unless it is empty: out is activation(first half of
    the sum) * second half. tiles, blocks and bank are as in `kernels.py`; the row is that of the first tile."""
    program = tl.program_id(0)
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    slot = tl.load(tiles).to(tl.int64)
    has_adapter = (slot >= 0) & (tl.load(tiles + 1) >= 0)
    slot = tl.maximum(slot, 0)
    num_blocks = tl.load(blocks + slot)
    rank = num_blocks * RANKS
    PARTS: tl.constexpr = 1 + (SECOND > 0) + (THIRD > 0)
    adapter = bank + slot * slot_size
    if program < num_low:
        ranks = program * LINES + tl.arange(0, LINES)
        if has_adapter & (program * LINES < PARTS * rank):
            down = adapter + down_units * rank.to(tl.int64)
            total = multiply(x, down, ranks, ranks < PARTS * rank, WIDTH, LINES, STRETCH)
            tl.store(low + ranks, total)
            tl.debug_barrier()  # all of the program's stores come before it is counted
            tl.atomic_add(counter, 1, sem="release")
        return
    EACH: tl.constexpr = OUTPUTS if ACTIVATION == "" else 2 * OUTPUTS
    lines = tl.arange(0, EACH)
    if ACTIVATION == "":
        outputs = (program - num_low) * OUTPUTS + lines
        is_line = outputs < num_outputs
        places = outputs
    else:  # the two of an output side by side
        outputs = (program - num_low) * OUTPUTS + lines // 2
        is_line = outputs < num_outputs
        places = outputs + lines % 2 * num_outputs
    total = multiply(x, weight, places, is_line, WIDTH, EACH, STRETCH)
    if HAS_BIAS:
        total += tl.load(bias + places, mask=is_line, other=0.0).to(tl.float32)
    if has_adapter:
        num_counted = tl.load(counter, volatile=True)
        while num_counted < PARTS * rank // LINES:
            num_counted = tl.load(counter, volatile=True)
        part = (places >= FIRST).to(tl.int32) + (places >= FIRST + SECOND).to(tl.int32)
        up = adapter + up_units * rank.to(tl.int64)
        in_block = tl.arange(0, RANKS)
        for block in range(num_blocks):
            own = low + (part * rank + block * RANKS)[:, None] + in_block[None, :]
            values = tl.load(own, mask=is_line[:, None], other=0.0, cache_modifier=".cg")
            spots = up + places[:, None].to(tl.int64) * rank + block * RANKS + in_block[None, :]
            factors = tl.load(spots, mask=is_line[:, None], other=0.0)
            total += tl.sum(values * factors.to(tl.float32), axis=1)
    kind = out.dtype.element_ty
    if ACTIVATION == "":
        tl.store(out + outputs, total.to(kind), mask=is_line)
    else:
        # Rounded before they are multiplied, as where the products are kept.
        gate, rest = tl.split(tl.reshape(total.to(kind).to(tl.float32), [OUTPUTS, 2]))
        outputs = (program - num_low) * OUTPUTS + tl.arange(0, OUTPUTS)
        tl.store(out + outputs, activated(gate, rest, ACTIVATION).to(kind), mask=outputs < num_outputs)
