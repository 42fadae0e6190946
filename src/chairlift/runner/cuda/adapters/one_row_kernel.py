"""The product of a single row together with what its adapter adds, in one kernel of Triton.

    programs 0 ...     some ranks of A x each, into `low`, and count themselves
    the next           some outputs of B low each, into `more`, once all of the former are counted
    all others         some outputs of W x each, as in `one_row`, and add what lies in `more`, once it is there

The first two are few: what they leave is there when most of the others begin, who ask for it before their weights.

Always: between launches `counter` is 0, and all of `more` is ABSENT, bits that no sum has: who reads an output puts
that back. Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.adapters.kernels import RANKS, outputs_of_piece, wait_until_counted
from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import activated
from chairlift.runner.cuda.one_row.product_kernel import multiply

ABSENT = tl.constexpr(-1)
_NAN = tl.constexpr(0x7FC00000)
LINES = tl.constexpr(2)  # of A, and of W, of a program
PIECE = tl.constexpr(64)  # outputs of B of a program


@triton.jit
def adapted_row_kernel(
    x, weight, bias, tiles, bank, low, more, counter, out, num_outputs, slot_size, down_units, up_units, num_low,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, WIDTH: tl.constexpr,
    STRETCH: tl.constexpr, ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [WIDTH], weight [FIRST + SECOND + THIRD, WIDTH], of up to three parts -> out [num_outputs]; low: float32, of
    all ranks of all parts; num_low: programs for it; more: the bits of float32, of all outputs. ACTIVATION, unless it
    is empty: out is activation(first half of the sum) * second half. tiles and bank are as in `kernels.py`; the row is
    that of the first tile."""
    program = tl.program_id(0)
    PARTS: tl.constexpr = 1 + (SECOND > 0) + (THIRD > 0)
    PIECES: tl.constexpr = (FIRST + PIECE - 1) // PIECE + (SECOND + PIECE - 1) // PIECE + (THIRD + PIECE - 1) // PIECE
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    if program >= num_low + PIECES:
        lines = tl.arange(0, LINES)
        if ACTIVATION == "":
            first = (program - num_low - PIECES) * LINES
            second = tl.minimum(first + 1, num_outputs - 1)
            places = first + lines
            is_line = places < num_outputs
        else:
            first = program - num_low - PIECES
            second = first + num_outputs
            places = first + lines * num_outputs
            is_line = places < 2 * num_outputs
        one, two = tl.load(more + first, volatile=True), tl.load(more + second, volatile=True)
        total = multiply(x, weight, places, is_line, WIDTH, LINES, STRETCH)
        if HAS_BIAS:
            total += tl.load(bias + places, mask=is_line, other=0.0).to(tl.float32)
        while (one == ABSENT) | (two == ABSENT):
            one, two = tl.load(more + first, volatile=True), tl.load(more + second, volatile=True)
        tl.debug_barrier()  # all of the program have read them
        tl.store(more + places, tl.full([LINES], ABSENT, tl.int32), mask=is_line)
        total += tl.where(lines == 0, one, two).to(tl.float32, bitcast=True)
        kind = out.dtype.element_ty
        if ACTIVATION == "":
            tl.store(out + places, total.to(kind), mask=is_line)
        else:
            # Rounded before they are multiplied, as where the products are kept.
            gate, rest = tl.split(total.to(kind).to(tl.float32))
            tl.store(out + first, activated(gate, rest, ACTIVATION).to(kind))
        return
    slot = tl.load(tiles).to(tl.int64)
    num_blocks = tl.where((slot >= 0) & (tl.load(tiles + 2) >= 0), tl.load(tiles + 1), 0)
    rank = num_blocks * RANKS
    adapter = bank + tl.maximum(slot, 0) * slot_size
    if program < num_low:
        ranks = program * LINES + tl.arange(0, LINES)
        if program * LINES < PARTS * rank:
            down = adapter + down_units * rank.to(tl.int64)
            total = multiply(x, down, ranks, ranks < PARTS * rank, WIDTH, LINES, STRETCH)
            tl.store(low + ranks, total)
            tl.debug_barrier()  # all of the program's stores come before it is counted
            tl.atomic_add(counter, 1, sem="release")
        return
    part, outputs, end = outputs_of_piece(program - num_low, FIRST, SECOND, THIRD, PIECE)
    is_output = outputs < end
    in_block = tl.arange(0, RANKS)
    up = adapter + up_units * rank.to(tl.int64) + outputs[:, None].to(tl.int64) * rank + in_block[None, :]
    factors = tl.load(up, mask=is_output[:, None] & (num_blocks > 0), other=0.0)
    wait_until_counted(counter, PARTS * rank // LINES, PIECES)
    total = tl.zeros([PIECE], dtype=tl.float32)
    for block in range(num_blocks):
        if block > 0:
            factors = tl.load(up + block * RANKS, mask=is_output[:, None], other=0.0)
        values = tl.load(low + part * rank + block * RANKS + in_block, cache_modifier=".cg")
        total += tl.sum(values[None, :] * factors.to(tl.float32), axis=1)
    bits = total.to(tl.int32, bitcast=True)
    tl.store(more + outputs, tl.where(bits == ABSENT, _NAN, bits), mask=is_output)
