"""What adapters add to products, in Triton: one kernel for a matrix, whatever adapters its rows have.

    tiles        [N, 2 + ROWS]: a slot, its adapter's blocks of ranks, and up to ROWS rows of the step that have it;
                 a slot or row of -1: none
    the first    S = x A^T of a tile: a program for each part and stretch of columns, which counts itself
    the others   out += S B^T, the stretches added up in order: a program for some outputs of a part, which waits until
                 all of its tile are counted

    a slot    | A of a matrix: [parts, rank, in] | A of the next | ... | B: [out, rank] | ... |

with the adapter's own rank, a multiple of RANKS: where a matrix begins is its number of units, times the rank.

Always: a row's sums are taken in the same order, alone or among others: tiles, stretches and blocks of ranks have fixed
sizes. Counters are 0 between launches: the last of those that waited sets its tile's back. Without torch: kernels are
compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous

ROWS = tl.constexpr(16)  # of a tile
RANKS = tl.constexpr(16)  # of a block: the fewest that tensor cores take
RECORD = tl.constexpr(2 + ROWS.value)  # of a tile


@triton.jit(do_not_specialize=["num_rows", "num_low"])
def adapter_kernel(
    x, out, tiles, bank, partials, counters, num_rows, num_low, slot_size, down_units, up_units,
    WIDTH: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, MAX_BLOCKS: tl.constexpr,
    STRETCH: tl.constexpr, OUTPUTS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [num_rows, WIDTH] -> added to out [num_rows, FIRST + SECOND + THIRD], the outputs of up to three parts;
    partials [tiles, parts, MAX_BLOCKS, splits, ROWS, RANKS]; num_low: programs of the first kind."""
    SPLITS: tl.constexpr = (WIDTH + STRETCH - 1) // STRETCH
    PARTS: tl.constexpr = 1 + (SECOND > 0) + (THIRD > 0)
    PIECES: tl.constexpr = (
        (FIRST + OUTPUTS - 1) // OUTPUTS + (SECOND + OUTPUTS - 1) // OUTPUTS + (THIRD + OUTPUTS - 1) // OUTPUTS
    )
    program = tl.program_id(0)
    is_low = program < num_low
    tile = tl.where(is_low, program // (PARTS * SPLITS), (program - num_low) // PIECES)
    record = tiles + tile * RECORD
    slot = tl.load(record).to(tl.int64)
    num_blocks = tl.load(record + 1)
    lines, ranks = tl.arange(0, ROWS), tl.arange(0, RANKS)
    rows = tl.load(record + 2 + lines)
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)  # also where there is nothing to do: who waits for this one waits for all before
    if slot < 0:
        return
    is_row = (rows >= 0) & (rows < num_rows)
    rank = (num_blocks * RANKS).to(tl.int64)
    adapter = bank + slot * slot_size
    counter = counters + tile
    if is_low:
        split = program % SPLITS
        part = program // SPLITS % PARTS
        columns = split * STRETCH + tl.arange(0, STRETCH)
        is_column = columns < WIDTH
        from_x = x + rows[:, None].to(tl.int64) * WIDTH + columns[None, :]
        values = tl.load(from_x, mask=is_row[:, None] & is_column[None, :], other=0.0)
        down = adapter + down_units * rank + (part * rank + ranks)[None, :] * WIDTH + columns[:, None]
        for block in range(num_blocks):
            weights = tl.load(down + block * RANKS * WIDTH, mask=is_column[:, None], other=0.0)
            total = tl.dot(values, weights, input_precision="ieee")
            place = ((tile * PARTS + part) * MAX_BLOCKS + block).to(tl.int64) * SPLITS + split
            tl.store(partials + place * ROWS * RANKS + lines[:, None] * RANKS + ranks[None, :], total)
        tl.debug_barrier()  # all of the program's stores come before it is counted
        tl.atomic_add(counter, 1, sem="release")
        return
    part, outputs, end = outputs_of_piece((program - num_low) % PIECES, FIRST, SECOND, THIRD, OUTPUTS)
    is_output = outputs < end
    up = adapter + up_units * rank + outputs[None, :] * rank + ranks[:, None]
    weights = tl.load(up, mask=is_output[None, :], other=0.0)
    target = out + rows[:, None].to(tl.int64) * (FIRST + SECOND + THIRD) + outputs[None, :]
    mask = is_row[:, None] & is_output[None, :]
    base = tl.load(target, mask=mask, other=0.0)
    wait_until_counted(counter, PARTS * SPLITS, PIECES)
    total = tl.zeros([ROWS, OUTPUTS], dtype=tl.float32)
    for block in range(num_blocks):
        place = ((tile * PARTS + part) * MAX_BLOCKS + block).to(tl.int64) * SPLITS
        parts = partials + place * ROWS * RANKS + lines[:, None] * RANKS + ranks[None, :]
        low = tl.zeros([ROWS, RANKS], dtype=tl.float32)
        for split in tl.static_range(SPLITS):
            low += tl.load(parts + split * ROWS * RANKS, cache_modifier=".cg")
        if block > 0:
            weights = tl.load(up + block * RANKS, mask=is_output[None, :], other=0.0)
        total = tl.dot(low.to(weights.dtype), weights, total, input_precision="ieee")
    tl.store(target, (base.to(tl.float32) + total).to(base.dtype), mask=mask)


@triton.jit
def outputs_of_piece(piece, FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, OUTPUTS: tl.constexpr):
    """Up to three parts are cut into pieces of OUTPUTS -> the piece's part, its outputs, and where that part ends"""
    first_pieces: tl.constexpr = (FIRST + OUTPUTS - 1) // OUTPUTS
    second_pieces: tl.constexpr = first_pieces + (SECOND + OUTPUTS - 1) // OUTPUTS
    part = (piece >= first_pieces).to(tl.int32) + (piece >= second_pieces).to(tl.int32)
    begin = tl.where(part == 0, 0, tl.where(part == 1, FIRST, FIRST + SECOND))
    end = tl.where(part == 0, FIRST, tl.where(part == 1, FIRST + SECOND, FIRST + SECOND + THIRD))
    pieces_before = tl.where(part == 0, 0, tl.where(part == 1, first_pieces, second_pieces))
    return part, begin + (piece - pieces_before) * OUTPUTS + tl.arange(0, OUTPUTS), end


@triton.jit
def wait_until_counted(counter, num_counted, num_waiting):
    """Until so many programs have counted themselves. The last of those that wait sets the counter back to 0."""
    found = tl.load(counter, volatile=True)
    while found < num_counted:
        found = tl.load(counter, volatile=True)
    if tl.atomic_add(counter, 1, sem="acq_rel") == num_counted + num_waiting - 1:
        tl.store(counter, 0)
