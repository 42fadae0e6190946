"""What adapters add to products, in Triton, whatever adapters the rows have: a kernel before the base's, one after it.

    low    S = x A^T of a tile: a program for each part and stretch of columns. The base's product comes next, whose
           weights are on their way meanwhile; so A is asked for before the previous kernel has ended.
    up     out += S B^T, the stretches added up in order: a program for a tile and a strip of outputs. Or activated, as
           gates are.

    tiles    [N, 2 + ROWS]: a slot, its adapter's blocks of ranks, and up to ROWS rows of the step that have it; a slot
             or row of -1: none. Rows without an adapter have tiles too.
    a slot   | A of a matrix: [parts, rank, in] | A of the next | ... | B: [out, rank] | ... |

with the adapter's own rank, a multiple of RANKS: where a matrix begins is its number of units, times the rank.

Always: a row's sums are taken in the same order, alone or among others: tiles, stretches and blocks of ranks have fixed
sizes. Tiles without rows come last. Tiles and adapters are there before the first kernel of a step. Without torch:
kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import activated

ROWS = tl.constexpr(16)  # of a tile
RANKS = tl.constexpr(16)  # of a block: the fewest that tensor cores take
RECORD = tl.constexpr(2 + ROWS.value)  # of a tile
TURNS = tl.constexpr(2)  # of a program of `up`
TOGETHER = tl.constexpr(4)  # stretches


@triton.jit(do_not_specialize=["num_rows"])
def low_kernel(
    x, tiles, bank, partials, num_rows, slot_size, down_units,
    WIDTH: tl.constexpr, PARTS: tl.constexpr, MAX_BLOCKS: tl.constexpr, STRETCH: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [num_rows, WIDTH] -> partials [tiles, PARTS, MAX_BLOCKS, splits, ROWS, RANKS]"""
    SPLITS: tl.constexpr = (WIDTH + STRETCH - 1) // STRETCH
    program = tl.program_id(0)
    tile = program // (PARTS * SPLITS)
    part = program // SPLITS % PARTS
    split = program % SPLITS
    launch_dependents(IS_DEPENDENT)
    slot, num_blocks, rows = _read_tile(tiles, tile)
    lines, ranks = tl.arange(0, ROWS), tl.arange(0, RANKS)
    columns = split * STRETCH + tl.arange(0, STRETCH)
    is_column = columns < WIDTH
    rank = (num_blocks * RANKS).to(tl.int64)
    first = bank + tl.maximum(slot, 0) * slot_size + down_units * rank + part * rank * WIDTH
    down = first + ranks[None, :] * WIDTH + columns[:, None]
    weights = tl.load(down, mask=is_column[:, None] & (slot >= 0), other=0.0)
    wait_for_previous(IS_DEPENDENT)  # also where there is nothing to do: who waits for this one waits for all before
    if slot < 0:
        return
    is_row = (rows >= 0) & (rows < num_rows)
    from_x = x + rows[:, None].to(tl.int64) * WIDTH + columns[None, :]
    values = tl.load(from_x, mask=is_row[:, None] & is_column[None, :], other=0.0)
    for block in range(num_blocks):
        if block > 0:
            weights = tl.load(down + block * RANKS * WIDTH, mask=is_column[:, None], other=0.0)
        total = tl.dot(values, weights, input_precision="ieee")
        place = ((tile * PARTS + part) * MAX_BLOCKS + block).to(tl.int64) * SPLITS + split
        tl.store(partials + place * ROWS * RANKS + lines[:, None] * RANKS + ranks[None, :], total)


@triton.jit(do_not_specialize=["num_rows"])
def up_kernel(
    out, tiles, bank, partials, num_rows, slot_size, up_units,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, SPLITS: tl.constexpr, MAX_BLOCKS: tl.constexpr,
    OUTPUTS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """partials, as `low_kernel` leaves them -> added to out [num_rows, FIRST + SECOND + THIRD], of up to three parts.
    A program has a tile and TURNS pieces of a part, each asked for while the one before is computed."""
    PARTS: tl.constexpr = 1 + (SECOND > 0) + (THIRD > 0)
    STRIP: tl.constexpr = OUTPUTS * TURNS
    STRIPS: tl.constexpr = (FIRST + STRIP - 1) // STRIP + (SECOND + STRIP - 1) // STRIP + (THIRD + STRIP - 1) // STRIP
    tile = tl.program_id(0) // STRIPS
    launch_dependents(IS_DEPENDENT)
    slot, num_blocks, rows = _read_tile(tiles, tile)
    part, begin, end = _strip(tl.program_id(0) % STRIPS, FIRST, SECOND, THIRD, STRIP)
    outputs = begin + tl.arange(0, OUTPUTS)[None, :]
    up = _up(bank, slot, slot_size, up_units, num_blocks, outputs)
    rank = num_blocks.to(tl.int64) * RANKS
    weights = tl.load(up, mask=(outputs < end) & (slot >= 0), other=0.0)
    wait_for_previous(IS_DEPENDENT)
    if slot < 0:
        return
    is_row = ((rows >= 0) & (rows < num_rows))[:, None]
    target = out + rows[:, None].to(tl.int64) * (FIRST + SECOND + THIRD) + outputs
    base = tl.load(target, mask=is_row & (outputs < end), other=0.0)
    place = (tile * PARTS + part) * MAX_BLOCKS
    first_low = _low(partials, place, True, SPLITS).to(weights.dtype)
    for turn in tl.static_range(TURNS):
        is_output = outputs + turn * OUTPUTS < end
        if turn + 1 < TURNS:
            is_next = outputs + (turn + 1) * OUTPUTS < end
            next_weights = tl.load(up + (turn + 1) * OUTPUTS * rank, mask=is_next, other=0.0)
            next_base = tl.load(target + (turn + 1) * OUTPUTS, mask=is_row & is_next, other=0.0)
        total = tl.dot(first_low, weights, input_precision="ieee")
        if MAX_BLOCKS > 1:
            total = _add_blocks(total, up + turn * OUTPUTS * rank, is_output, num_blocks, partials, place, SPLITS)
        tl.store(target + turn * OUTPUTS, (base.to(tl.float32) + total).to(base.dtype), mask=is_row & is_output)
        if turn + 1 < TURNS:
            weights, base = next_weights, next_base


@triton.jit(do_not_specialize=["num_rows"])
def gated_up_kernel(
    product, out, tiles, bank, partials, num_rows, slot_size, up_units,
    WIDTH: tl.constexpr, PARTS: tl.constexpr, SPLITS: tl.constexpr, MAX_BLOCKS: tl.constexpr, OUTPUTS: tl.constexpr,
    ACTIVATION: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """product [num_rows, 2 * WIDTH], of two parts or of one that is both -> out [num_rows, WIDTH]: activation(first
    half of the sum) * second half. Rows without an adapter have tiles too."""
    STRIP: tl.constexpr = OUTPUTS * TURNS
    STRIPS: tl.constexpr = (WIDTH + STRIP - 1) // STRIP
    tile = tl.program_id(0) // STRIPS
    launch_dependents(IS_DEPENDENT)
    slot, num_blocks, rows = _read_tile(tiles, tile)
    outputs = tl.program_id(0) % STRIPS * STRIP + tl.arange(0, OUTPUTS)[None, :]
    gate = _up(bank, slot, slot_size, up_units, num_blocks, outputs)
    rank = num_blocks.to(tl.int64) * RANKS
    rest = gate + WIDTH * rank
    gate_weights = tl.load(gate, mask=(outputs < WIDTH) & (slot >= 0), other=0.0)
    rest_weights = tl.load(rest, mask=(outputs < WIDTH) & (slot >= 0), other=0.0)
    wait_for_previous(IS_DEPENDENT)
    if tl.max(rows) < 0:
        return
    is_row = ((rows >= 0) & (rows < num_rows))[:, None]
    source = product + rows[:, None].to(tl.int64) * (2 * WIDTH) + outputs
    target = out + rows[:, None].to(tl.int64) * WIDTH + outputs
    gates = tl.load(source, mask=is_row & (outputs < WIDTH), other=0.0)
    rests = tl.load(source + WIDTH, mask=is_row & (outputs < WIDTH), other=0.0)
    kind = gates.dtype
    gate_place, rest_place = tile * PARTS * MAX_BLOCKS, (tile * PARTS + PARTS - 1) * MAX_BLOCKS
    gate_low = _low(partials, gate_place, slot >= 0, SPLITS).to(kind)
    rest_low = _low(partials, rest_place, slot >= 0, SPLITS).to(kind)
    for turn in tl.static_range(TURNS):
        is_output = outputs + turn * OUTPUTS < WIDTH
        if turn + 1 < TURNS:
            is_next = outputs + (turn + 1) * OUTPUTS < WIDTH
            next_gate_weights = tl.load(gate + (turn + 1) * OUTPUTS * rank, mask=is_next & (slot >= 0), other=0.0)
            next_rest_weights = tl.load(rest + (turn + 1) * OUTPUTS * rank, mask=is_next & (slot >= 0), other=0.0)
            next_gates = tl.load(source + (turn + 1) * OUTPUTS, mask=is_row & is_next, other=0.0)
            next_rests = tl.load(source + WIDTH + (turn + 1) * OUTPUTS, mask=is_row & is_next, other=0.0)
        gate_sum = tl.dot(gate_low, gate_weights, input_precision="ieee")
        rest_sum = tl.dot(rest_low, rest_weights, input_precision="ieee")
        if MAX_BLOCKS > 1:
            beside = turn * OUTPUTS * rank
            gate_sum = _add_blocks(gate_sum, gate + beside, is_output, num_blocks, partials, gate_place, SPLITS)
            rest_sum = _add_blocks(rest_sum, rest + beside, is_output, num_blocks, partials, rest_place, SPLITS)
        # Rounded before they are multiplied, as where the products are kept.
        gate_sum = (gates.to(tl.float32) + gate_sum).to(kind).to(tl.float32)
        rest_sum = (rests.to(tl.float32) + rest_sum).to(kind).to(tl.float32)
        results = activated(gate_sum, rest_sum, ACTIVATION).to(kind)
        tl.store(target + turn * OUTPUTS, results, mask=is_row & is_output)
        if turn + 1 < TURNS:
            gate_weights, rest_weights = next_gate_weights, next_rest_weights
            gates, rests = next_gates, next_rests


@triton.jit
def _read_tile(tiles, tile):
    """-> its slot, the blocks of ranks, its rows"""
    record = tiles + tile * RECORD
    rows = tl.load(record + 2 + tl.arange(0, ROWS))
    return tl.load(record).to(tl.int64), tl.load(record + 1), rows


@triton.jit
def _up(bank, slot, slot_size, up_units, num_blocks, outputs):
    """Where the first block of B lies, [RANKS, outputs]"""
    rank = num_blocks.to(tl.int64) * RANKS
    return bank + tl.maximum(slot, 0) * slot_size + (up_units + outputs) * rank + tl.arange(0, RANKS)[:, None]


@triton.jit
def _low(partials, place, is_there, SPLITS: tl.constexpr):
    """A block of S, [ROWS, RANKS]: its stretches, some at once, as one by one each would go through shared memory
    before it is added."""
    splits = tl.arange(0, TOGETHER)[:, None, None]
    lines, ranks = tl.arange(0, ROWS)[None, :, None], tl.arange(0, RANKS)[None, None, :]
    source = partials + (place.to(tl.int64) * SPLITS + splits) * ROWS * RANKS + lines * RANKS + ranks
    total = tl.sum(tl.load(source, mask=(splits < SPLITS) & is_there, other=0.0), axis=0)
    for first in tl.static_range(TOGETHER, SPLITS, TOGETHER):
        mask = (first + splits < SPLITS) & is_there
        total += tl.sum(tl.load(source + first * ROWS * RANKS, mask=mask, other=0.0), axis=0)
    return total


@triton.jit
def _add_blocks(total, up, is_output, num_blocks, partials, place, SPLITS: tl.constexpr):
    """The products of all blocks of ranks but the first."""
    for block in range(1, num_blocks):
        weights = tl.load(up + block * RANKS, mask=is_output, other=0.0)
        low = _low(partials, place + block, True, SPLITS).to(weights.dtype)
        total = tl.dot(low, weights, total, input_precision="ieee")
    return total


@triton.jit
def _strip(strip, FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, STRIP: tl.constexpr):
    """Up to three parts are cut into strips -> the strip's part, where it begins, and where that part ends"""
    first_strips: tl.constexpr = (FIRST + STRIP - 1) // STRIP
    second_strips: tl.constexpr = first_strips + (SECOND + STRIP - 1) // STRIP
    part = (strip >= first_strips).to(tl.int32) + (strip >= second_strips).to(tl.int32)
    begin = tl.where(part == 0, 0, tl.where(part == 1, FIRST, FIRST + SECOND))
    end = tl.where(part == 0, FIRST, tl.where(part == 1, FIRST + SECOND, FIRST + SECOND + THIRD))
    strips_before = tl.where(part == 0, 0, tl.where(part == 1, first_strips, second_strips))
    return part, begin + (strip - strips_before) * STRIP, end
