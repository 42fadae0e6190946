"""Choosing a token from each row of logits in Triton: the steps of runner/sampling/sampler.py, without sorting.

A token's distance is how far its logit lies below the largest: 0 for the argmax, infinite for a forbidden one. No
distance is negative, so their bits, read as integers, have the same order. An edge takes the place of sorting: the
least distance up to which the tokens' number (top-k) or weight (top-p, the draw) reaches a mark. `_edge` finds it by
summing up to several distances in each pass over the row. Of tokens at the same distance the first by id go first.

Always: a row's token comes from its own numbers, summed in a fixed order, whatever shares the launch.
"""

import triton
import triton.language as tl

FAR = tl.constexpr(0x7F800000)  # the bits of an infinite distance


@triton.jit(do_not_specialize=["draws"])
def draw_kernel(
    logits, draws, tokens, last, vocab,
    WIDTH: tl.constexpr, CANDIDATES: tl.constexpr, ATTEMPTS: tl.constexpr, PIVOTS: tl.constexpr, TILE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """One row of `draws` (rows.py) a program: tokens[row] and last[keeper]; -1 and 0 where logits are not numbers."""
    own = draws + tl.program_id(0) * WIDTH
    row = tl.load(own).to(tl.int64)
    keeper = tl.load(own + 1)
    x = logits + row * vocab
    largest, smallest, is_number = _range(x, vocab, TILE, STAGES)
    token = keeper * 0 - 1
    if is_number:
        token = _choose(x, vocab, largest, smallest, own, CANDIDATES, ATTEMPTS, PIVOTS, TILE, STAGES)
    tl.store(tokens + row, token.to(tl.int64))
    tl.store(last + keeper, tl.maximum(token, 0).to(tl.int64))


@triton.jit
def _range(x, vocab, TILE: tl.constexpr, STAGES: tl.constexpr):
    """The largest logit, the smallest that is finite, and whether all are numbers or -inf, and some a number."""
    tops = tl.full([TILE], float("-inf"), tl.float32)
    bottoms = tl.full([TILE], float("inf"), tl.float32)
    strange = tl.zeros([TILE], tl.int32)
    for first in tl.range(0, vocab, TILE, num_stages=STAGES):
        places = first + tl.arange(0, TILE)
        values = tl.load(x + places, mask=places < vocab, other=float("-inf"))
        is_number = values == values
        tops = tl.maximum(tops, tl.where(is_number, values, float("-inf")))
        bottoms = tl.minimum(bottoms, tl.where(is_number & (values > float("-inf")), values, float("inf")))
        strange |= (is_number == 0).to(tl.int32)
    largest = tl.max(tops, axis=0)
    largest = tl.where(largest == 0, 0.0, largest)  # of the two zeros, the one from which no distance is negative
    is_number = (tl.max(strange, axis=0) == 0) & (largest > float("-inf")) & (largest < float("inf"))
    return largest, tl.min(bottoms, axis=0), is_number


@triton.jit
def _choose(
    x, vocab, largest, smallest, own,
    CANDIDATES: tl.constexpr, ATTEMPTS: tl.constexpr, PIVOTS: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    temperature = _number(own + 2)
    top_k = tl.load(own + 3)
    top_p = _number(own + 4)
    min_p = _number(own + 5)
    noise = own + 6
    if temperature == 0:
        token = _nth_at(x, vocab, largest, 0, 0, TILE)
    else:
        scale = 1.0 / temperature
        if (top_k > 0) | (top_p < 1) | (min_p > 0):
            token = _draw_filtered(
                x, vocab, largest, smallest, scale, top_k, top_p, min_p, noise,
                CANDIDATES, ATTEMPTS, PIVOTS, TILE, STAGES,
            )  # fmt: skip
        else:
            whole, _, _, _ = _survey(x, vocab, largest, scale, 0.0, FAR, TILE, STAGES)
            token = _draw_plain(x, vocab, largest, scale, _mark(_number(noise), whole), TILE)
    return token


@triton.jit
def _number(place):
    """A float32 that travels among integers."""
    return tl.load(place).to(tl.float32, bitcast=True)


@triton.jit
def _draw_filtered(
    x, vocab, largest, smallest, scale, top_k, top_p, min_p, noise,
    CANDIDATES: tl.constexpr, ATTEMPTS: tl.constexpr, PIVOTS: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """What is kept: all tokens nearer than `edge`, and the first `num` of those at it; of these, what min-p leaves."""
    edge = top_k * 0 + FAR
    num = vocab
    if (top_k > 0) & (top_k < vocab):
        far = (largest - smallest).to(tl.int32, bitcast=True)
        edge, nearer = _edge(x, vocab, largest, scale, 0.0, far, top_k * 1.0, True, False, PIVOTS, TILE, STAGES)
        num = top_k - nearer.to(tl.int32)
    nearer, far, num_at, _ = _survey(x, vocab, largest, scale, 0.0, edge, TILE, STAGES)
    num = tl.minimum(num, num_at)
    whole = nearer + num * _weigh(edge, scale, 0.0)
    if top_p < 1:
        crossing, nearer = _edge(x, vocab, largest, scale, 0.0, far, top_p * whole, False, False, PIVOTS, TILE, STAGES)
        num_below = tl.ceil((top_p * whole - nearer) / _weigh(crossing, scale, 0.0))
        num_below = tl.maximum(tl.minimum(num_below, vocab).to(tl.int32), 1)  # the crossing token stays
        num = tl.where(crossing == edge, tl.minimum(num, num_below), num_below)
        edge = crossing
    nearer, far, num_at, num_all = _survey(x, vocab, largest, scale, min_p, edge, TILE, STAGES)
    num = tl.minimum(num, num_at)
    token = num * 0 - 1
    if (top_k == 0) & (num_all >= CANDIDATES) & (vocab > CANDIDATES):
        # The sampler would not find these among its candidates; it draws from all until a token is one that is kept.
        attempt = 1
        while (token < 0) & (attempt <= ATTEMPTS):
            drawn = _draw_plain(x, vocab, largest, scale, _mark(_number(noise + attempt), whole), TILE)
            if _is_kept(x, vocab, largest, scale, min_p, edge, num, drawn, TILE):
                token = drawn
            attempt += 1
    if token < 0:
        mark = _mark(_number(noise), nearer + num * _weigh(edge, scale, min_p))
        at, nearer = _edge(x, vocab, largest, scale, min_p, far, mark, False, True, PIVOTS, TILE, STAGES)
        nth = tl.minimum((mark - nearer) / _weigh(at, scale, min_p), vocab).to(tl.int32)
        if nth > 0:  # rounding must not lead beyond the last of equals
            _, _, num_at, _ = _survey(x, vocab, largest, scale, min_p, at, TILE, STAGES)
            nth = tl.minimum(nth, tl.where(at == edge, num, num_at) - 1)
        token = _nth_at(x, vocab, largest, at, nth, TILE)
    return token


@triton.jit
def _distances(x, vocab, largest, places):
    """Their bits. What lies beyond the end is infinitely far."""
    values = tl.load(x + places, mask=places < vocab, other=float("-inf"))
    return (largest - values).to(tl.int32, bitcast=True)


@triton.jit
def _weigh(distances, scale, min_p):
    """1 for the argmax; 0 for what min-p leaves out."""
    weights = tl.exp(-(distances.to(tl.float32, bitcast=True) * scale))
    return tl.where(weights >= min_p, weights, 0.0)


@triton.jit
def _mark(noise, whole):
    """Rounding may lift the product to the whole, which no sum exceeds."""
    below = (whole.to(tl.int32, bitcast=True) - 1).to(tl.float32, bitcast=True)
    return tl.minimum(noise * whole, below)


@triton.jit
def _survey(x, vocab, largest, scale, min_p, edge, TILE: tl.constexpr, STAGES: tl.constexpr):
    """(what all nearer than the edge weigh, the farthest up to the edge that weighs anything, how many are at the edge,
    how many up to the edge weigh anything)."""
    nearer = largest * 0.0
    farthest = tl.zeros([TILE], tl.int32)
    num_at = tl.zeros([TILE], tl.int32)
    num_all = tl.zeros([TILE], tl.int32)
    for first in tl.range(0, vocab, TILE, num_stages=STAGES):
        distances = _distances(x, vocab, largest, first + tl.arange(0, TILE))
        weights = _weigh(distances, scale, min_p)
        # Tile by tile, as `_draw_plain` goes along them: its last sum must be this one.
        nearer += tl.sum(tl.where(distances < edge, weights, 0.0), axis=0)
        farthest = tl.maximum(farthest, tl.where((distances <= edge) & (weights > 0), distances, 0))
        num_at += (distances == edge).to(tl.int32)
        num_all += ((distances <= edge) & (weights > 0)).to(tl.int32)
    return nearer, tl.max(farthest, axis=0), tl.sum(num_at, axis=0), tl.sum(num_all, axis=0)


@triton.jit
def _edge(
    x, vocab, largest, scale, min_p, far, mark,
    IS_COUNT: tl.constexpr, IS_STRICT: tl.constexpr, PIVOTS: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The least distance up to which tokens weigh (or count) the mark, or more than it; and what those nearer do.

    It is `far` at the most, where some token lies. A distance that splits the count exactly is given as an edge beyond
    it with no tokens at it.
    """
    # The sum up to low is short of the mark, the sum up to high is not, and some token lies between.
    low = far * 0 - 1
    high = far
    nearer = mark * 0.0
    while high - low > 1:
        pivots = _pivots(low, high, PIVOTS)
        sums = tl.zeros([PIVOTS, TILE], tl.float32)
        least = tl.full([1, TILE], FAR, tl.int32)
        most = tl.zeros([1, TILE], tl.int32)
        for first in tl.range(0, vocab, TILE, num_stages=STAGES):
            distances = _distances(x, vocab, largest, first + tl.arange(0, TILE)[None, :])
            if IS_COUNT:
                weights = tl.full([1, TILE], 1.0, tl.float32)
            else:
                weights = _weigh(distances, scale, min_p)
            sums += tl.where(distances <= pivots[:, None], weights, 0.0)
            is_between = (distances > low) & (distances <= high)
            least = tl.minimum(least, tl.where(is_between, distances, FAR))
            most = tl.maximum(most, tl.where(is_between, distances, 0))
        totals = tl.sum(sums, axis=1)
        if IS_STRICT:
            is_short = totals <= mark
        else:
            is_short = totals < mark
        nearer = tl.maximum(nearer, tl.max(tl.where(is_short, totals, 0.0), axis=0))
        new_low = tl.max(tl.where(is_short, pivots, low), axis=0)
        new_high = tl.min(tl.where(is_short, high, pivots), axis=0)
        low = tl.maximum(new_low, tl.min(tl.min(least, axis=1), axis=0) - 1)
        high = tl.minimum(new_high, tl.max(tl.max(most, axis=1), axis=0))
        if IS_COUNT:
            split = tl.min(tl.where(totals == mark, pivots, FAR), axis=0)
            if split < FAR:
                low = split
                high = split + 1
                nearer = mark
    return high, nearer


@triton.jit
def _pivots(low, high, PIVOTS: tl.constexpr):
    """Distances between low and high, evenly."""
    start = tl.maximum(low, 0).to(tl.float32, bitcast=True)
    parts = (tl.arange(0, PIVOTS) + 1) / (PIVOTS + 1)
    pivots = (start + (high.to(tl.float32, bitcast=True) - start) * parts).to(tl.int32, bitcast=True)
    return tl.minimum(tl.maximum(pivots, low + 1), high - 1)


@triton.jit
def _draw_plain(x, vocab, largest, scale, mark, TILE: tl.constexpr):
    """The first token, by id, at which the running sum of weights exceeds the mark."""
    first = 0
    before = mark * 0.0
    weights = _weigh(_distances(x, vocab, largest, tl.arange(0, TILE)), scale, 0.0)
    here = tl.sum(weights, axis=0)
    while (before + here <= mark) & (first + TILE < vocab):
        before += here
        first += TILE
        weights = _weigh(_distances(x, vocab, largest, first + tl.arange(0, TILE)), scale, 0.0)
        here = tl.sum(weights, axis=0)
    places = first + tl.arange(0, TILE)
    # Running sums round differently, so the tile's last one may fall short: then it is the last that weighs anything.
    is_beyond = (before + tl.cumsum(weights, axis=0) > mark) & (weights > 0)
    found = tl.min(tl.where(is_beyond, places, vocab), axis=0)
    return tl.minimum(found, tl.max(tl.where(weights > 0, places, 0), axis=0))


@triton.jit
def _nth_at(x, vocab, largest, at, nth, TILE: tl.constexpr):
    """The token at this distance with `nth` such before it."""
    first = 0
    before = 0
    is_at = (_distances(x, vocab, largest, tl.arange(0, TILE)) == at).to(tl.int32)
    here = tl.sum(is_at, axis=0)
    while (before + here <= nth) & (first + TILE < vocab):
        before += here
        first += TILE
        is_at = (_distances(x, vocab, largest, first + tl.arange(0, TILE)) == at).to(tl.int32)
        here = tl.sum(is_at, axis=0)
    places = first + tl.arange(0, TILE)
    is_beyond = (is_at > 0) & (before + tl.cumsum(is_at, axis=0) > nth)
    return tl.min(tl.where(is_beyond, places, vocab - 1), axis=0)


@triton.jit
def _is_kept(x, vocab, largest, scale, min_p, edge, num, token, TILE: tl.constexpr):
    """Whether the token is nearer than the edge or among the first at it, and min-p leaves it."""
    distance = (largest - tl.load(x + token)).to(tl.int32, bitcast=True)
    is_kept = (distance < edge) & (_weigh(distance, scale, min_p) > 0)
    if (distance == edge) & (_weigh(distance, scale, min_p) > 0):
        is_kept = token <= _nth_at(x, vocab, largest, edge, num - 1, TILE)
    return is_kept
