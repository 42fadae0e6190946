"""What a recurrent layer keeps of requests, in pages: where its numbers lie, for kernels.

    half of a request   [what came in of the tile's tokens | state before the tile, and the convolution's last inputs]
    page                a row of the layer's first tensor, then one of its second, as if they were one memory

Always: half c mod 2 has tile c, so a place follows from the position alone. Numbers never lie across two pages.
"""

import triton
import triton.language as tl

# A span, of tokens of one request: their first row of the step, how many, the position of the first, the row of the
# request's tables, its first unit, and of further states to be written the first and how many.
SPAN = tl.constexpr(7)


@triton.jit
def spot(first, second, table, offset, SIZE: tl.constexpr):
    """Pointers to numbers at these offsets in the pages of a table; SIZE: numbers of a page in each tensor."""
    inner = offset % (2 * SIZE)
    page = tl.load(table + offset // (2 * SIZE)).to(tl.int64) * SIZE
    return tl.where(inner < SIZE, first + (page + inner), second + (page + inner - SIZE))


@triton.jit
def numbers(NUM: tl.constexpr, RUN: tl.constexpr):
    """0 to NUM by runs, [1, NUM / RUN, RUN]: so the compiler sees that those of a run are read and written as one."""
    return (tl.arange(0, NUM // RUN) * RUN)[None, :, None] + tl.arange(0, RUN)[None, None, :]


@triton.jit
def runs(first, second, table, offset, NUM: tl.constexpr, RUN: tl.constexpr, SIZE: tl.constexpr):
    """Pointers to NUM numbers each from offsets [rows, 1] on, by runs, none of which lies in two pages."""
    begins = offset + (tl.arange(0, NUM // RUN) * RUN)[None, :]
    return spot(first, second, table, begins, SIZE)[:, :, None] + tl.arange(0, RUN)[None, None, :]


@triton.jit
def came_in(
    inputs, first, second, tables, position, low, row, start, end, is_first_tile, stride,
    NUM: tl.constexpr, ROW: tl.constexpr, CHANNELS: tl.constexpr, NARROW: tl.constexpr, TAPS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, TILE_PAGES: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """Inputs of the convolution, of NUM channels from `low` on, by runs: of positions of this step, of its first tile
    before, of the tile before that. Channels that are not there are zeros. tables: of the half with the last two."""
    columns = low + numbers(NUM, RUN)
    is_channel = columns < CHANNELS
    is_new = (position >= start) & (position < end)
    place = (row + position - start).to(tl.int64)[:, None, None]
    found = tl.load(inputs + place * stride + columns, mask=is_new[:, None, None] & is_channel, other=0.0)
    if is_first_tile:
        origin = start // C * C
        is_kept = (position >= origin) & (position < start)
        is_old = is_kept | ((position < origin) & (position >= 0))
        kept = (position - origin) * ROW + low
        before = NARROW + (position - origin + TAPS - 1) * CHANNELS + low
        offset = tl.where(is_kept, kept, tl.where(is_old, before, 0))[:, None]
        table = tables + tl.where(is_kept, 0, TILE_PAGES)[:, None]
        places = runs(first, second, table, offset, NUM, RUN, SIZE)
        old = tl.load(places, mask=is_old[:, None, None] & is_channel, other=0.0)
        found = tl.where(is_new[:, None, None], found, old)
    return found
