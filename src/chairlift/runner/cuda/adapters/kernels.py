"""What adapters add to products, in Triton: two kernels for a matrix, whatever adapters its rows have.

    tiles     [N, 1 + ROWS]: a slot, and up to ROWS rows of the step that have its adapter; -1: none
    shrink    S = x A^T of a tile, for each stretch of columns: a program for each stretch and RANKS ranks of a part
    expand    out += S B^T, the stretches added up in order: a program for some outputs of a part

    a slot    | A of a matrix: [parts, rank, in] | A of the next | ... | B: [out, rank] | ... |

with the adapter's own rank, a multiple of RANKS: where a matrix begins is its number of units, times the rank.

Always: a row's sums are taken in the same order, alone or among others: tiles, stretches and blocks of ranks have fixed
sizes. Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous

ROWS = tl.constexpr(16)  # of a tile
RANKS = tl.constexpr(16)  # of a block: the fewest that tensor cores take


@triton.jit(do_not_specialize=["num_rows"])
def shrink_kernel(
    x, tiles, blocks, bank, partials, num_rows, slot_size, units,
    WIDTH: tl.constexpr, MAX_BLOCKS: tl.constexpr, SPLITS: tl.constexpr, STRETCH: tl.constexpr, STEP: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [num_rows, WIDTH] -> partials [tiles, parts * MAX_BLOCKS, SPLITS, ROWS, RANKS]; blocks: of ranks, by slot."""
    tile, place, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(tiles + tile * (1 + ROWS))
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)  # also where there is nothing to do: who waits for this one waits for all before
    if slot >= 0:
        num_blocks = tl.load(blocks + slot)
        part, block = place // MAX_BLOCKS, place % MAX_BLOCKS
        if block < num_blocks:
            lines = tl.arange(0, ROWS)
            rows = tl.load(tiles + tile * (1 + ROWS) + 1 + lines)
            is_row = (rows >= 0) & (rows < num_rows)
            ranks = tl.arange(0, RANKS)
            rank = (num_blocks * RANKS).to(tl.int64)
            matrix = bank + slot.to(tl.int64) * slot_size + units * rank
            down = matrix + (part * rank + block * RANKS + ranks)[None, :] * WIDTH
            columns = split * STRETCH + tl.arange(0, STEP)
            total = tl.zeros([ROWS, RANKS], dtype=tl.float32)
            for low in tl.static_range(0, STRETCH, STEP):
                is_column = columns + low < WIDTH
                weights = tl.load(down + (columns + low)[:, None], mask=is_column[:, None], other=0.0)
                values = tl.load(
                    x + rows[:, None].to(tl.int64) * WIDTH + (columns + low)[None, :],
                    mask=is_row[:, None] & is_column[None, :], other=0.0,
                )  # fmt: skip
                total = tl.dot(values, weights, total, input_precision="ieee")
            out = partials + ((tile * tl.num_programs(1) + place).to(tl.int64) * SPLITS + split) * ROWS * RANKS
            tl.store(out + lines[:, None] * RANKS + ranks[None, :], total)


@triton.jit(do_not_specialize=["num_rows"])
def expand_kernel(
    out, tiles, blocks, bank, partials, num_rows, slot_size, units,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, MAX_BLOCKS: tl.constexpr, SPLITS: tl.constexpr,
    OUTPUTS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """partials -> added to out [num_rows, FIRST + SECOND + THIRD], the outputs of up to three parts."""
    tile, piece = tl.program_id(0), tl.program_id(1)
    slot = tl.load(tiles + tile * (1 + ROWS))
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    first_pieces: tl.constexpr = (FIRST + OUTPUTS - 1) // OUTPUTS
    second_pieces: tl.constexpr = first_pieces + (SECOND + OUTPUTS - 1) // OUTPUTS
    part = (piece >= first_pieces).to(tl.int32) + (piece >= second_pieces).to(tl.int32)
    begin = tl.where(part == 0, 0, tl.where(part == 1, FIRST, FIRST + SECOND))
    end = tl.where(part == 0, FIRST, tl.where(part == 1, FIRST + SECOND, FIRST + SECOND + THIRD))
    pieces_before = tl.where(part == 0, 0, tl.where(part == 1, first_pieces, second_pieces))
    if slot >= 0:
        num_blocks = tl.load(blocks + slot)
        lines, ranks = tl.arange(0, ROWS), tl.arange(0, RANKS)
        rows = tl.load(tiles + tile * (1 + ROWS) + 1 + lines)
        is_row = (rows >= 0) & (rows < num_rows)
        outputs = begin + (piece - pieces_before) * OUTPUTS + tl.arange(0, OUTPUTS)
        is_output = outputs < end
        rank = (num_blocks * RANKS).to(tl.int64)
        up = bank + slot.to(tl.int64) * slot_size + units * rank + outputs[None, :] * rank
        num_parts: tl.constexpr = 1 + (SECOND > 0) + (THIRD > 0)
        total = tl.zeros([ROWS, OUTPUTS], dtype=tl.float32)
        for block in range(num_blocks):
            place = (tile * num_parts + part) * MAX_BLOCKS + block
            parts = partials + place.to(tl.int64) * SPLITS * ROWS * RANKS + lines[:, None] * RANKS + ranks[None, :]
            low = tl.zeros([ROWS, RANKS], dtype=tl.float32)
            for split in tl.static_range(SPLITS):
                low += tl.load(parts + split * ROWS * RANKS)
            weights = tl.load(up + block * RANKS + ranks[:, None], mask=is_output[None, :], other=0.0)
            total = tl.dot(low.to(weights.dtype), weights, total, input_precision="ieee")
        target = out + rows[:, None].to(tl.int64) * (FIRST + SECOND + THIRD) + outputs[None, :]
        mask = is_row[:, None] & is_output[None, :]
        base = tl.load(target, mask=mask, other=0.0)
        tl.store(target, (base.to(tl.float32) + total).to(base.dtype), mask=mask)
