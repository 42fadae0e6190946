"""What a tile of a gated delta net takes that does not depend on the state: all tiles of a step at once.

Letters: C tokens of a tile, t a later and j an earlier one, G the sum of the logarithms of decays from its start.

    heads     queries, keys and values out of the convolution, in the model's type
    factors   that make queries and keys 1 long
    inverses  (I + A)^-1 diag(beta), A[t, j] = beta_t (k_t k_j) e^(G_t - G_j) below the diagonal
    scores    (q_t k_j) e^(G_t - G_j), the diagonal included

Always: a row's numbers come from its own and earlier rows, in one order, whatever of its tile is new. Rows of a tile
that are not there yet count as zeros.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.recurrent.pages import SPAN, came_in, runs, spot


@triton.jit
def tiles_kernel(
    inputs, rates, first, second, tables, spans, units, writes, taps, decay, bias, heads, factors, sums, inverses,
    scores, stride, table_width, writes_width, pages_of_write, eps, scale,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr, TAPS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, NARROW: tl.constexpr, TILE_PAGES: tl.constexpr, HALF_PAGES: tl.constexpr,
    RUN: tl.constexpr, SHARE: tl.constexpr, IS_WIDE: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """A tile and a value head a program; the first of those that share a key head stores its query and key."""
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
    half = start // C % 2
    own = tables + tl.load(spans + span * SPAN + 3) * table_width + half * HALF_PAGES
    is_first = tile * C < start + TAPS - 1  # its convolution sees what came in before
    rows = tl.arange(0, C)
    position = tile * C + rows
    is_live = position < end
    wait_for_previous(IS_DEPENDENT)

    key_head = head // (HEADS // KEY_HEADS)
    low_query, low_key = key_head * KEY, (KEY_HEADS + key_head) * KEY
    low_value = 2 * KEY_HEADS * KEY + head * VALUE
    query = _convolved(
        inputs, first, second, own, position, low_query, taps, row, start, end, is_first, stride,
        KEY, ROW, CHANNELS, NARROW, TAPS, C, SIZE, TILE_PAGES, RUN,
    )  # fmt: skip
    key = _convolved(
        inputs, first, second, own, position, low_key, taps, row, start, end, is_first, stride,
        KEY, ROW, CHANNELS, NARROW, TAPS, C, SIZE, TILE_PAGES, RUN,
    )  # fmt: skip
    value = _convolved(
        inputs, first, second, own, position, low_value, taps, row, start, end, is_first, stride,
        VALUE, ROW, CHANNELS, NARROW, TAPS, C, SIZE, TILE_PAGES, RUN,
    )  # fmt: skip
    query_factor = tl.rsqrt(tl.sum(query * query, axis=1) + eps) * scale
    key_factor = tl.rsqrt(tl.sum(key * key, axis=1) + eps)
    lines = heads + ((unit.to(tl.int64) * C + rows) * CHANNELS)[:, None]
    shown = is_live[:, None]
    tl.store(lines + (low_value + tl.arange(0, VALUE))[None, :], value.to(heads.dtype.element_ty), mask=shown)
    if head % (HEADS // KEY_HEADS) == 0:
        dims = tl.arange(0, KEY)[None, :]
        tl.store(lines + low_query + dims, query.to(heads.dtype.element_ty), mask=shown)
        tl.store(lines + low_key + dims, key.to(heads.dtype.element_ty), mask=shown)
        lengths = factors + (unit * C + rows) * 2 * KEY_HEADS + key_head
        tl.store(lengths, query_factor)
        tl.store(lengths + KEY_HEADS, key_factor)

    rate = CHANNELS + head
    strength = _rate(rates, first, second, own, position, head, rate, row, start, end, is_first, HEADS, ROW, C, SIZE)
    fading = _rate(
        rates, first, second, own, position, HEADS + head, rate + HEADS, row, start, end, is_first, HEADS, ROW, C, SIZE
    )
    beta = (1.0 / (1.0 + tl.exp(-strength))).to(heads.dtype.element_ty).to(tl.float32)
    beta = tl.where(is_live, beta, 0.0)
    logs = tl.load(decay + head) * _softplus(fading + tl.load(bias + head))
    total = tl.cumsum(tl.where(is_live, logs, 0.0), axis=0)
    tl.store(sums + (unit * HEADS + head) * C + rows, total)

    apart = total[:, None] - total[None, :]
    kind = tl.float32 if IS_WIDE else heads.dtype.element_ty  # as it was rounded: products are whole
    query, key = query.to(kind), key.to(kind)
    turned = tl.trans(key)
    later, not_before = rows[:, None] > rows[None, :], rows[:, None] >= rows[None, :]
    between = tl.dot(key, turned, input_precision="ieee") * (beta * key_factor)[:, None] * key_factor[None, :]
    between *= tl.exp(tl.where(later, apart, float("-inf")))
    weights = tl.dot(query, turned, input_precision="ieee") * query_factor[:, None] * key_factor[None, :]
    weights *= tl.exp(tl.where(not_before, apart, float("-inf")))
    inverse = tl.where(rows[:, None] == rows[None, :], 1.0, 0.0)
    for j in range(C - 1):
        known = tl.sum(tl.where(rows[:, None] == j, inverse, 0.0), axis=0)
        factor = tl.sum(tl.where(rows[None, :] == j, between, 0.0), axis=1)
        inverse = inverse - factor[:, None] * known[None, :]
    target = (unit * HEADS + head).to(tl.int64) * C * C + rows[:, None] * C + rows[None, :]
    tl.store(inverses + target, inverse * beta[None, :])
    tl.store(scores + target, weights)

    # A further state has the convolution's last inputs too. Here, as nothing is overwritten yet.
    low = tl.load(spans + span * SPAN + 5)
    for index in range(low, low + tl.load(spans + span * SPAN + 6)):
        if tl.load(writes + index * writes_width) == (tile + 1) * C:
            pages = writes + index * writes_width + pages_of_write
            keep_narrow(
                inputs, first, second, own, pages, head, (tile + 1) * C, row, start, end, is_first, stride,
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
    columns = low + tl.arange(0, NUM)
    is_own = (taken < TAPS - 1)[:, None] & ((columns < low + SHARE) & (columns < CHANNELS))[None, :]
    offset = NARROW + tl.where(taken < TAPS - 1, taken, 0)[:, None] * CHANNELS + low
    tl.store(runs(first, second, pages, offset, NUM, RUN, SIZE), found, mask=is_own)


@triton.jit
def _convolved(
    inputs, first, second, own, position, low, taps, row, start, end, is_first, stride,
    NUM: tl.constexpr, ROW: tl.constexpr, CHANNELS: tl.constexpr, NARROW: tl.constexpr, TAPS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, TILE_PAGES: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """[C, NUM] after the activation, as float32 that the model's type has."""
    kind = inputs.dtype.element_ty
    columns = low + tl.arange(0, NUM)
    total = tl.zeros([C, NUM], dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        found = came_in(
            inputs, first, second, own, position - (TAPS - 1) + tap, low, row, start, end, is_first, stride,
            NUM, ROW, CHANNELS, NARROW, TAPS, C, SIZE, TILE_PAGES, RUN,
        )  # fmt: skip
        total += tl.load(taps + tap * CHANNELS + columns)[None, :] * found.to(tl.float32)
    total = total.to(kind).to(tl.float32)
    return (total / (1.0 + tl.exp(-total))).to(kind).to(tl.float32)


@triton.jit
def _rate(
    rates, first, second, own, position, column, kept_column, row, start, end, is_first,
    HEADS: tl.constexpr, ROW: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """A number of each token of the tile, float32 [C]."""
    is_new = (position >= start) & (position < end)
    found = tl.load(rates + (row + position - start).to(tl.int64) * 2 * HEADS + column, mask=is_new, other=0.0)
    if is_first:
        is_kept = position < start
        offset = tl.where(is_kept, position % C * ROW + kept_column, 0)
        old = tl.load(spot(first, second, own, offset, SIZE), mask=is_kept, other=0.0)
        found = tl.where(is_new, found, old)
    return found.to(tl.float32)


@triton.jit
def _softplus(x):
    """log(1 + e^x), as exact where e^x is small."""
    grown = tl.exp(tl.minimum(x, 20.0))
    rounded = 1.0 + grown
    small = tl.where(rounded == 1.0, grown, tl.log(rounded) * (grown / tl.where(rounded == 1.0, 1.0, rounded - 1.0)))
    return tl.where(x > 20.0, x, small)
