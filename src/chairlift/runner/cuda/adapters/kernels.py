"""What adapters add to products, in Triton, whatever adapters the rows have: a kernel before the base's, one after it.

    low    S = x A^T of a tile: a program for each part and stretch of columns. The base's product comes next, whose
           weights are on their way meanwhile; so A is asked for before the previous kernel has ended.
    up     out += S B^T, the stretches added up in order: a program for some outputs of a part

    tiles    [N, 2 + ROWS]: a slot, its adapter's blocks of ranks, and up to ROWS rows of the step that have it; a slot
             or row of -1: none
    a slot   | A of a matrix: [parts, rank, in] | A of the next | ... | B: [out, rank] | ... |

with the adapter's own rank, a multiple of RANKS: where a matrix begins is its number of units, times the rank.

Always: a row's sums are taken in the same order, alone or among others: tiles, stretches and blocks of ranks have fixed
sizes. Tiles without rows come last. Tiles and adapters are there before the first kernel of a step. Without torch:
kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous

ROWS = tl.constexpr(16)  # of a tile
RANKS = tl.constexpr(16)  # of a block: the fewest that tensor cores take
RECORD = tl.constexpr(2 + ROWS.value)  # of a tile


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


@triton.jit(do_not_specialize=["num_rows", "most_tiles"])
def up_kernel(
    out, tiles, bank, partials, num_rows, most_tiles, slot_size, up_units,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, SPLITS: tl.constexpr, MAX_BLOCKS: tl.constexpr,
    OUTPUTS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """partials, as `low_kernel` leaves them -> added to out [num_rows, FIRST + SECOND + THIRD], of up to three parts.
    Programs of a piece take turns with the tiles: most steps have fewer than the room there is."""
    PARTS: tl.constexpr = 1 + (SECOND > 0) + (THIRD > 0)
    PIECES: tl.constexpr = (
        (FIRST + OUTPUTS - 1) // OUTPUTS + (SECOND + OUTPUTS - 1) // OUTPUTS + (THIRD + OUTPUTS - 1) // OUTPUTS
    )
    tile = tl.program_id(0) // PIECES
    launch_dependents(IS_DEPENDENT)
    part, outputs, end = _outputs_of_piece(tl.program_id(0) % PIECES, FIRST, SECOND, THIRD, OUTPUTS)
    is_output = (outputs < end)[None, :]
    splits = tl.arange(0, triton.next_power_of_2(SPLITS))[:, None, None]
    lines, ranks = tl.arange(0, ROWS)[None, :, None], tl.arange(0, RANKS)[None, None, :]
    slot, num_blocks, rows = _read_tile(tiles, tile)
    weights = tl.load(_up(bank, slot, slot_size, up_units, num_blocks, outputs), mask=is_output & (slot >= 0), other=0)
    wait_for_previous(IS_DEPENDENT)
    while slot >= 0:
        mask = ((rows >= 0) & (rows < num_rows))[:, None] & is_output
        target = out + rows[:, None].to(tl.int64) * (FIRST + SECOND + THIRD) + outputs[None, :]
        base = tl.load(target, mask=mask, other=0.0)
        total = tl.zeros([ROWS, OUTPUTS], dtype=tl.float32)
        for block in range(num_blocks):
            if block > 0:
                up = _up(bank, slot, slot_size, up_units, num_blocks, outputs)
                weights = tl.load(up + block * RANKS, mask=is_output, other=0.0)
            place = ((tile * PARTS + part) * MAX_BLOCKS + block).to(tl.int64) * SPLITS
            from_low = partials + (place + splits) * ROWS * RANKS + lines * RANKS + ranks
            # All at once: one by one, each would go through shared memory before it is added.
            low = tl.sum(tl.load(from_low, mask=splits < SPLITS, other=0.0), axis=0)
            total = tl.dot(low.to(weights.dtype), weights, total, input_precision="ieee")
        tl.store(target, (base.to(tl.float32) + total).to(base.dtype), mask=mask)
        tile += tl.num_programs(0) // PIECES
        slot = tl.full((), -1, tl.int64)
        if tile < most_tiles:
            slot, num_blocks, rows = _read_tile(tiles, tile)
            up = _up(bank, slot, slot_size, up_units, num_blocks, outputs)
            weights = tl.load(up, mask=is_output & (slot >= 0), other=0.0)


@triton.jit
def _read_tile(tiles, tile):
    """-> its slot, the blocks of ranks, its rows"""
    record = tiles + tile * RECORD
    rows = tl.load(record + 2 + tl.arange(0, ROWS))
    return tl.load(record).to(tl.int64), tl.load(record + 1), rows


@triton.jit
def _up(bank, slot, slot_size, up_units, num_blocks, outputs):
    """Where the first block of B lies, [RANKS, outputs]"""
    rank = (num_blocks * RANKS).to(tl.int64)
    first = bank + tl.maximum(slot, 0) * slot_size + up_units * rank
    return first + outputs[None, :] * rank + tl.arange(0, RANKS)[:, None]


@triton.jit
def _outputs_of_piece(piece, FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, OUTPUTS: tl.constexpr):
    """Up to three parts are cut into pieces of OUTPUTS -> the piece's part, its outputs, and where that part ends"""
    first_pieces: tl.constexpr = (FIRST + OUTPUTS - 1) // OUTPUTS
    second_pieces: tl.constexpr = first_pieces + (SECOND + OUTPUTS - 1) // OUTPUTS
    part = (piece >= first_pieces).to(tl.int32) + (piece >= second_pieces).to(tl.int32)
    begin = tl.where(part == 0, 0, tl.where(part == 1, FIRST, FIRST + SECOND))
    end = tl.where(part == 0, FIRST, tl.where(part == 1, FIRST + SECOND, FIRST + SECOND + THIRD))
    pieces_before = tl.where(part == 0, 0, tl.where(part == 1, first_pieces, second_pieces))
    return part, begin + (piece - pieces_before) * OUTPUTS + tl.arange(0, OUTPUTS), end
