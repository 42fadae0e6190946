"""The convolution of a gated delta net: of each tile of a step all its rows, and what a further state has of it.

Always: a row's numbers come from its own inputs and those of the rows before, whatever of its tile is new. Runs after
nothing of the step has been overwritten.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.recurrent.pages import SPAN, came_in, numbers, runs


@triton.jit
def convolve_kernel(
    inputs, first, second, tables, spans, units, writes, taps, heads, stride, table_width, writes_width, pages_of_write,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr, TAPS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, NARROW: tl.constexpr, TILE_PAGES: tl.constexpr, HALF_PAGES: tl.constexpr,
    RUN: tl.constexpr, SHARE: tl.constexpr, ROWS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Some rows of a tile and a share of the channels a program."""
    CHANNELS: tl.constexpr = 2 * KEY_HEADS * KEY + HEADS * VALUE
    ROW: tl.constexpr = CHANNELS + 2 * HEADS
    unit = tl.program_id(0)
    share = tl.program_id(1)
    part = tl.program_id(2)
    launch_dependents(IS_DEPENDENT)
    span = tl.load(units + unit * 2)
    if span < 0:
        return
    tile = tl.load(units + unit * 2 + 1)
    row = tl.load(spans + span * SPAN)
    start = tl.load(spans + span * SPAN + 2)
    end = start + tl.load(spans + span * SPAN + 1)
    own = tables + tl.load(spans + span * SPAN + 3) * table_width + start // C % 2 * HALF_PAGES
    is_first = tile * C < start + TAPS - 1  # it sees what came in before
    if tile * C + part * ROWS >= end:
        return
    wait_for_previous(IS_DEPENDENT)

    # Row after row, each read once.
    low = share * SHARE
    columns = low + numbers(SHARE, RUN)
    is_channel = columns < CHANNELS
    factors, window = (), ()
    for tap in tl.static_range(TAPS):
        factors = factors + (tl.load(taps + tap * CHANNELS + columns, mask=is_channel, other=0.0),)  # type: ignore[assignment]  # noqa: RUF005
    for place in tl.static_range(ROWS + TAPS - 1):
        position = tile * C + part * ROWS + place - (TAPS - 1)
        found = came_in(
            inputs, first, second, own, position + tl.zeros([1], tl.int32), low, row, start, end, True, stride,
            SHARE, ROW, CHANNELS, NARROW, TAPS, C, SIZE, TILE_PAGES, RUN,
        )  # fmt: skip
        window = window[-(TAPS - 1) :] + (found.to(tl.float32),)  # noqa: RUF005
        if place >= TAPS - 1:
            total = tl.zeros([1, SHARE // RUN, RUN], dtype=tl.float32)
            for tap in tl.static_range(TAPS):
                total += factors[tap] * window[tap]
            total = total.to(heads.dtype.element_ty).to(tl.float32)
            total = (total / (1.0 + tl.exp(-total))).to(heads.dtype.element_ty)
            line = (unit.to(tl.int64) * C + part * ROWS + place - (TAPS - 1)) * CHANNELS
            tl.store(heads + line + columns, total, mask=is_channel & (position < end))
    if part + 1 < C // ROWS:
        return

    # A further state has the convolution's last inputs too. Here, as nothing is overwritten yet.
    write = tl.load(spans + span * SPAN + 5)
    for index in range(write, write + tl.load(spans + span * SPAN + 6)):
        if tl.load(writes + index * writes_width) == (tile + 1) * C:
            pages = writes + index * writes_width + pages_of_write
            keep_narrow(
                inputs, first, second, own, pages, share, (tile + 1) * C, row, start, end, is_first, stride,
                ROW, CHANNELS, NARROW, TAPS, C, SIZE, TILE_PAGES, RUN, SHARE,
            )  # fmt: skip


@triton.jit
def keep_narrow(
    inputs, first, second, own, pages, share, after, row, start, end, is_first, stride,
    ROW: tl.constexpr, CHANNELS: tl.constexpr, NARROW: tl.constexpr, TAPS: tl.constexpr, C: tl.constexpr,
    SIZE: tl.constexpr, TILE_PAGES: tl.constexpr, RUN: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """One share of the convolution's last inputs before position `after`, to these pages of a state."""
    NUM: tl.constexpr = triton.next_power_of_2(SHARE)
    low = share * SHARE
    taken = tl.arange(0, triton.next_power_of_2(TAPS))
    position = tl.where(taken < TAPS - 1, after - (TAPS - 1) + taken, -1)
    found = came_in(
        inputs, first, second, own, position, low, row, start, end, is_first, stride,
        NUM, ROW, CHANNELS, NARROW, TAPS, C, SIZE, TILE_PAGES, RUN,
    )  # fmt: skip
    columns = numbers(NUM, RUN)
    is_own = (taken < TAPS - 1)[:, None, None] & (columns < SHARE) & (low + columns < CHANNELS)
    offset = NARROW + tl.where(taken < TAPS - 1, taken, 0)[:, None] * CHANNELS + low
    tl.store(runs(first, second, pages, offset, NUM, RUN, SIZE), found, mask=is_own)
