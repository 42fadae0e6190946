"""What a tile of a gated delta net takes that does not depend on the state: all tiles of a step at once.

Letters: C tokens of a tile, t a later and j an earlier one, G the sum of the logarithms of decays from its start.

    factors   that make queries and keys 1 long
    inverses  (I + A)^-1 diag(beta), A[t, j] = beta_t (k_t k_j) e^(G_t - G_j) below the diagonal
    scores    (q_t k_j) e^(G_t - G_j), the diagonal included

Always: queries and keys are those `convolve_kernel` has written. A row's numbers come from its own and earlier rows, in
one order, whatever of its tile is new. Rows of a tile that are not there yet count as zeros.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.recurrent.pages import SPAN, spot


@triton.jit
def tiles_kernel(
    rates, first, second, tables, spans, units, decay, bias, heads, factors, sums, inverses, scores, table_width, eps,
    scale,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, NEIGHBOURS: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, TILE_PAGES: tl.constexpr, HALF_PAGES: tl.constexpr, IS_WIDE: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """A tile and a value head a program; the first of those that share a key head stores its factors."""
    CHANNELS: tl.constexpr = 2 * KEY_HEADS * KEY + HEADS * VALUE
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
    own = tables + tl.load(spans + span * SPAN + 3) * table_width + start // C % 2 * HALF_PAGES
    rows = tl.arange(0, C)
    position = tile * C + rows
    is_live = position < end
    wait_for_previous(IS_DEPENDENT)

    key_head = head // NEIGHBOURS % KEY_HEADS
    source = (
        heads + ((unit.to(tl.int64) * C + rows) * CHANNELS)[:, None] + (key_head * KEY + tl.arange(0, KEY))[None, :]
    )
    query = tl.load(source, mask=is_live[:, None], other=0.0)
    key = tl.load(source + KEY_HEADS * KEY, mask=is_live[:, None], other=0.0)
    strength = _rate(rates, first, second, own, position, head, row, start, end, CHANNELS, HEADS, C, SIZE)
    fading = _rate(rates, first, second, own, position, HEADS + head, row, start, end, CHANNELS, HEADS, C, SIZE)

    wide_query, wide_key = query.to(tl.float32), key.to(tl.float32)
    query_factor = tl.rsqrt(tl.sum(wide_query * wide_query, axis=1) + eps) * scale
    key_factor = tl.rsqrt(tl.sum(wide_key * wide_key, axis=1) + eps)
    if head == key_head * NEIGHBOURS:
        lengths = factors + (unit * C + rows) * 2 * KEY_HEADS + key_head
        tl.store(lengths, query_factor)
        tl.store(lengths + KEY_HEADS, key_factor)
    beta = (1.0 / (1.0 + tl.exp(-strength))).to(heads.dtype.element_ty).to(tl.float32)
    beta = tl.where(is_live, beta, 0.0)
    logs = tl.load(decay + head) * _softplus(fading + tl.load(bias + head))
    total = tl.cumsum(tl.where(is_live, logs, 0.0), axis=0)
    tl.store(sums + (unit * HEADS + head) * C + rows, total)

    apart = total[:, None] - total[None, :]
    turned = tl.trans(key)
    later, not_before = rows[:, None] > rows[None, :], rows[:, None] >= rows[None, :]
    between = tl.dot(key, turned, input_precision="ieee") * (beta * key_factor)[:, None] * key_factor[None, :]
    between *= tl.exp(tl.where(later, apart, float("-inf")))
    weights = tl.dot(query, turned, input_precision="ieee") * query_factor[:, None] * key_factor[None, :]
    weights *= tl.exp(tl.where(not_before, apart, float("-inf")))
    target = (unit * HEADS + head).to(tl.int64) * C * C + rows[:, None] * C + rows[None, :]
    tl.store(scores + target, weights)
    inverse = tl.where(rows[:, None] == rows[None, :], 1.0, 0.0)
    for j in range(C - 1):
        known = tl.sum(tl.where(rows[:, None] == j, inverse, 0.0), axis=0)
        factor = tl.sum(tl.where(rows[None, :] == j, between, 0.0), axis=1)
        inverse = inverse - factor[:, None] * known[None, :]
    tl.store(inverses + target, inverse * beta[None, :])


@triton.jit
def _rate(
    rates, first, second, own, position, column, row, start, end,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """A number of each token of the tile, float32 [C]: of this step, or kept from before."""
    is_new = (position >= start) & (position < end)
    is_kept = position < start
    found = tl.load(rates + (row + position - start).to(tl.int64) * 2 * HEADS + column, mask=is_new, other=0.0)
    offset = tl.where(is_kept, position % C * (CHANNELS + 2 * HEADS) + CHANNELS + column, 0)
    old = tl.load(spot(first, second, own, offset, SIZE), mask=is_kept, other=0.0)
    return tl.where(is_new, found, old).to(tl.float32)


@triton.jit
def _softplus(x):
    """log(1 + e^x), as exact where e^x is small."""
    grown = tl.exp(tl.minimum(x, 20.0))
    rounded = 1.0 + grown
    small = tl.where(rounded == 1.0, grown, tl.log(rounded) * (grown / tl.where(rounded == 1.0, 1.0, rounded - 1.0)))
    return tl.where(x > 20.0, x, small)
