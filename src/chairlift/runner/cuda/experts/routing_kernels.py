"""Which experts each row chooses, and the rows of each expert side by side, in Triton.

A pair is a row and one of its choices: pair p is choice p % CHOSEN of row p // CHOSEN.

    order   pairs by expert, those of an expert in order
    tiles   of up to ROWS pairs of one expert: the expert, the first pair's place in the order, their number

Always: nothing waits for the host, so that steps can be captured. Without torch: kernels are compiled by processes that
do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous

TINY = tl.constexpr(1e-20)  # keeps a sum of weights from being 0


@triton.jit
def route_kernel(
    logits, correction, factors, ids, weights, num_experts, factor,
    BLOCK: tl.constexpr, CHOSEN: tl.constexpr, CHOICES: tl.constexpr, SCORES: tl.constexpr,
    IS_NORMALISED: tl.constexpr, HAS_CORRECTION: tl.constexpr, HAS_FACTORS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """logits [T, num_experts] -> ids and weights [T, CHOSEN], best first; of equals the first. One row a program.

    BLOCK and CHOICES are num_experts and CHOSEN rounded up to powers of two."""
    row = tl.program_id(0)
    experts = tl.arange(0, BLOCK)
    is_expert = experts < num_experts
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    scores = tl.load(logits + row * num_experts + experts, mask=is_expert, other=float("-inf"))
    if SCORES == "softmax":
        shares = tl.exp(scores - tl.max(scores, axis=0))
        scores = shares / tl.sum(shares, axis=0)
    elif SCORES == "sigmoid":
        scores = 1.0 / (1.0 + tl.exp(-scores))
    ranked = scores
    if HAS_CORRECTION:
        ranked += tl.load(correction + experts, mask=is_expert, other=0.0)
    ranked = tl.where(is_expert, ranked, float("-inf"))
    choices = tl.arange(0, CHOICES)
    chosen = tl.zeros([CHOICES], dtype=tl.int32)
    own = tl.full([CHOICES], float("-inf"), dtype=tl.float32)
    for choice in tl.static_range(CHOSEN):
        first = tl.min(tl.where(ranked == tl.max(ranked, axis=0), experts, BLOCK), axis=0)
        first = tl.minimum(first, num_experts - 1)  # where scores are no numbers
        is_first = experts == first
        chosen = tl.where(choices == choice, first, chosen)
        own = tl.where(choices == choice, tl.sum(tl.where(is_first, scores, 0.0), axis=0), own)
        ranked = tl.where(is_first, float("-inf"), ranked)
    is_choice = choices < CHOSEN
    if SCORES == "chosen":
        own = tl.exp(own - tl.max(own, axis=0))
        own = own / tl.sum(own, axis=0)
    if IS_NORMALISED:
        own = own / (tl.sum(tl.where(is_choice, own, 0.0), axis=0) + TINY)
    if HAS_FACTORS:
        own *= tl.load(factors + chosen, mask=is_choice, other=0.0)
    tl.store(ids + row * CHOSEN + choices, chosen, mask=is_choice)
    tl.store(weights + row * CHOSEN + choices, own * factor, mask=is_choice)


@triton.jit(do_not_specialize=["num_pairs"])
def place_kernel(
    ids, order, tiles, num_tiles, num_pairs, num_experts,
    EXPERTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """An expert a program: its pairs' places in the order, and its tiles. EXPERTS: a power of two above num_experts."""
    expert = tl.program_id(0)
    experts = tl.arange(0, EXPERTS)
    counts = tl.zeros([EXPERTS], dtype=tl.int32)
    for low in range(0, num_pairs, BLOCK):
        pairs = low + tl.arange(0, BLOCK)
        counts += tl.histogram(tl.load(ids + pairs, mask=pairs < num_pairs, other=num_experts), EXPERTS)
    counts = tl.where(experts < num_experts, counts, 0)
    place = tl.sum(tl.where(experts < expert, counts, 0), axis=0)
    tile = tl.sum(tl.where(experts < expert, (counts + ROWS - 1) // ROWS, 0), axis=0)
    count = tl.sum(tl.where(experts == expert, counts, 0), axis=0)
    for first in range(0, count, ROWS):
        tl.store(tiles + tile * 3, expert)
        tl.store(tiles + tile * 3 + 1, place + first)
        tl.store(tiles + tile * 3 + 2, tl.minimum(count - first, ROWS))
        tile += 1
    if expert == num_experts - 1:
        tl.store(num_tiles, tile)
    for low in range(0, num_pairs, BLOCK):
        pairs = low + tl.arange(0, BLOCK)
        is_own = tl.load(ids + pairs, mask=pairs < num_pairs, other=num_experts) == expert
        before = tl.cumsum(is_own.to(tl.int32), axis=0) - 1
        tl.store(order + place + before, pairs, mask=is_own)
        place += tl.sum(is_own.to(tl.int32), axis=0)


@triton.jit
def combine_kernel(
    parts, weights, shared, out, width,
    CHOSEN: tl.constexpr, BLOCK: tl.constexpr, HAS_SHARED: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out [T, width] = shared + the sum of weights * parts, choice by choice; a stretch of a row a program."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    if HAS_SHARED:
        total += tl.load(shared + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    for choice in tl.static_range(CHOSEN):
        pair = row * CHOSEN + choice
        part = tl.load(parts + pair * width + columns, mask=mask, other=0.0).to(tl.float32)
        total += tl.load(weights + pair) * part
    tl.store(out + row * width + columns, total.to(out.dtype.element_ty), mask=mask)
