"""The tiles of a gated delta net one after the other: a request, a head and a slice of its values a program.

The slice of the state stays in registers from tile to tile, turned: [values, keys]. `tiles_kernel` has done what does
not depend on it. Of a tile, with e^G of each token and C the last:

    updates = inverses (v - e^G k S)
    outputs = e^G q S + scores updates
    next S  = e^G_C S + k^T (e^(G_C - G) updates)

Always: state and sums are float32. Queries and keys have 16 bits and are multiplied as they are; their factors come
after the products. What is float32 is multiplied in two parts of bfloat16: each product is right to 2^-16. Rows that
are not there yet add zeros.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.recurrent.pages import SPAN, spot


@triton.jit
def walk_kernel(
    heads, factors, sums, inverses, scores, first, second, tables, spans, writes, out, table_width, writes_width,
    pages_of_write,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, NEIGHBOURS: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr,
    SLICE: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr, TILE_PAGES: tl.constexpr, HALF_PAGES: tl.constexpr,
    IS_WIDE: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """SIZE: float32 numbers of a page in each tensor; `first` and `second` are those tensors as float32."""
    CHANNELS: tl.constexpr = 2 * KEY_HEADS * KEY + HEADS * VALUE
    columns = tl.program_id(0) * SLICE + tl.arange(0, SLICE)
    head = tl.program_id(1)
    span = tl.program_id(2)
    launch_dependents(IS_DEPENDENT)
    row = tl.load(spans + span * SPAN)
    count = tl.load(spans + span * SPAN + 1)
    if count == 0:
        return
    start = tl.load(spans + span * SPAN + 2)
    end = start + count
    own = tables + tl.load(spans + span * SPAN + 3) * table_width + TILE_PAGES
    first_unit = tl.load(spans + span * SPAN + 4)
    write = tl.load(spans + span * SPAN + 5)
    num_writes = write + tl.load(spans + span * SPAN + 6)
    wanted = tl.load(writes + write * writes_width, mask=write < num_writes, other=0)
    key_head = head // NEIGHBOURS % KEY_HEADS
    rows = tl.arange(0, C)
    dims = tl.arange(0, KEY)
    entries = (head * KEY + dims) * VALUE
    begun = start // C
    last = end // C
    state = tl.zeros([SLICE, KEY], dtype=tl.float32)
    # Nothing of this step has written it, and no kernel waits across the steps before: it is read while others run.
    if begun > 0:
        state = tl.load(spot(first, second, own + begun % 2 * HALF_PAGES, entries, SIZE)[None, :] + columns[:, None])
    wait_for_previous(IS_DEPENDENT)
    for tile in range(begun, tl.cdiv(end, C)):
        unit = (first_unit + tile - begun).to(tl.int64)
        position = tile * C + rows
        is_live = position < end
        lines = (unit * C + rows) * CHANNELS
        source = heads + lines[:, None] + (key_head * KEY + dims)[None, :]
        query = tl.load(source, mask=is_live[:, None], other=0.0)
        key = tl.load(source + KEY_HEADS * KEY, mask=is_live[:, None], other=0.0)
        source = heads + lines[None, :] + (2 * KEY_HEADS * KEY + head * VALUE + columns)[:, None]
        value = tl.load(source, mask=is_live[None, :], other=0.0).to(tl.float32)
        lengths = factors + (unit * C + rows) * 2 * KEY_HEADS + key_head
        query_factor, key_factor = tl.load(lengths), tl.load(lengths + KEY_HEADS)
        total = tl.load(sums + (unit * HEADS + head) * C + rows)
        final = tl.load(sums + (unit * HEADS + head) * C + C - 1)
        square = (unit * HEADS + head) * C * C + rows[None, :] * C + rows[:, None]
        inverse = tl.load(inverses + square)
        weights = tl.load(scores + square)

        grown = tl.exp(total)
        seen = _product(state, tl.trans(key), IS_WIDE) * (grown * key_factor)[None, :]
        found = _product(state, tl.trans(query), IS_WIDE) * (grown * query_factor)[None, :]
        update = _product(value - seen, inverse, IS_WIDE)
        result = found + _product(update, weights, IS_WIDE)
        target = (row + position - start).to(tl.int64) * HEADS * VALUE + head * VALUE
        is_new = is_live & (position >= start)
        spread = out + target[None, :] + columns[:, None]
        tl.store(spread, result.to(out.dtype.element_ty), mask=is_new[None, :])
        if tile < last:
            rest = update * (tl.exp(final - total) * key_factor)[None, :]
            state = state * tl.exp(final) + _product(rest, key, IS_WIDE)
            if (tile + 1) * C == wanted:
                pages = writes + write * writes_width + pages_of_write
                tl.store(spot(first, second, pages, entries, SIZE)[None, :] + columns[:, None], state)
                write += 1
                wanted = tl.load(writes + write * writes_width, mask=write < num_writes, other=0)
    if last > begun:
        tl.store(spot(first, second, own + last % 2 * HALF_PAGES, entries, SIZE)[None, :] + columns[:, None], state)


@triton.jit
def _product(wide, other, IS_WIDE: tl.constexpr):
    """wide @ other, float32. A model that computes in float32 has its products in float32, slowly."""
    if IS_WIDE:
        return tl.dot(wide, other, input_precision="ieee")
    if other.dtype == tl.bfloat16:
        high, low = _parts(wide)
        return tl.dot(high, other, tl.dot(low, other))
    high, low = _parts(wide)
    other_high, other_low = _parts(other.to(tl.float32))
    return tl.dot(high, other_high, tl.dot(high, other_low, tl.dot(low, other_high)))


@triton.jit
def _parts(x):
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)
