"""What comes after the tiles of a gated delta net: norm and gate of each head, and what the next step needs.

Always: rows of a tile and inputs of the convolution are written here, after everything that was there has been read.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.recurrent.convolve_kernel import keep_narrow
from chairlift.runner.cuda.recurrent.pages import SPAN, numbers, runs, spot


@triton.jit
def finish_kernel(
    out, inputs, rates, first, second, tables, spans, units, gain, stride, table_width, eps,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr, TAPS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, NARROW: tl.constexpr, TILE_PAGES: tl.constexpr, HALF_PAGES: tl.constexpr,
    RUN: tl.constexpr, SHARE: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """A tile and a head a program; it also keeps one share of the channels, and its own rates."""
    CHANNELS: tl.constexpr = 2 * KEY_HEADS * KEY + HEADS * VALUE
    ROW: tl.constexpr = CHANNELS + 2 * HEADS
    unit = tl.program_id(0)
    head = tl.program_id(1)
    launch_dependents(IS_DEPENDENT)
    span = tl.load(units + unit * 2)
    if span < 0:
        return
    tile = tl.load(units + unit * 2 + 1)
    row = tl.load(spans + span * SPAN)
    start = tl.load(spans + span * SPAN + 2)
    end = start + tl.load(spans + span * SPAN + 1)
    own = tables + tl.load(spans + span * SPAN + 3) * table_width
    begun = start // C
    last = end // C
    rows = tl.arange(0, C)
    position = tile * C + rows
    is_new = (position >= start) & (position < end)
    lines = (row + position - start).to(tl.int64)
    kind = out.dtype.element_ty
    columns = head * VALUE + tl.arange(0, VALUE)
    gains = tl.load(gain + tl.arange(0, VALUE))
    wait_for_previous(IS_DEPENDENT)

    outputs = out + lines[:, None] * HEADS * VALUE + columns[None, :]
    values = tl.load(outputs, mask=is_new[:, None], other=0.0).to(tl.float32)
    gates = inputs + lines[:, None] * stride + CHANNELS + columns[None, :]
    gates = tl.load(gates, mask=is_new[:, None], other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=1) / VALUE + eps)
    normed = (values * scale[:, None] * gains[None, :]).to(kind).to(tl.float32)
    tl.store(outputs, (normed * (gates / (1.0 + tl.exp(-gates)))).to(kind), mask=is_new[:, None])

    # Of a span that passes one end of a tile both tiles: what it passed may have been drafted.
    if (tile == last) | ((tile == begun) & (last == begun + 1)):
        pages = own + tile % 2 * HALF_PAGES
        low = head * SHARE
        NUM: tl.constexpr = triton.next_power_of_2(SHARE)
        inner = numbers(NUM, RUN)
        is_kept = (inner < SHARE) & (low + inner < CHANNELS)
        for line in range(tl.maximum(start - tile * C, 0), tl.minimum(end - tile * C, C)):
            source = inputs + (row + tile * C + line - start).to(tl.int64) * stride + low
            row_inputs = tl.load(source + inner, mask=is_kept, other=0.0)
            offset = tl.zeros([1, 1], dtype=tl.int32) + line * ROW + low
            tl.store(runs(first, second, pages, offset, NUM, RUN, SIZE), row_inputs, mask=is_kept)
        rate = tl.arange(0, 2) * HEADS + head
        offset = tl.where(is_new[:, None], rows[:, None] * ROW + CHANNELS + rate[None, :], 0)
        row_rates = tl.load(rates + lines[:, None] * 2 * HEADS + rate[None, :], mask=is_new[:, None], other=0.0)
        tl.store(spot(first, second, pages, offset, SIZE), row_rates, mask=is_new[:, None])
    if (tile + 1 == last) & (last > begun):
        keep_narrow(
            inputs, first, second, own + begun % 2 * HALF_PAGES, own + last % 2 * HALF_PAGES + TILE_PAGES, head,
            last * C, row, start, end, tile == begun, stride,
            ROW, CHANNELS, NARROW, TAPS, C, SIZE, TILE_PAGES, RUN, SHARE,
        )  # fmt: skip
