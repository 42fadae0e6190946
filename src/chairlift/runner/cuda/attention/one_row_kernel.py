"""Attention of a single row in one kernel: rotation, the cache write, the walk over its context and the join.

For models in which each head has its own keys. One program a head and a stretch of the context. The one that holds the
row's own position rotates and stores its key and value and uses them as they will be read; the others read what was
there before, so no program waits for another. The last program of a head to finish joins the stretches, in order.

Always: `counters` is all 0 between launches.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.attention.pages import first_key
from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import capped, kept, normalise, rotate


@triton.jit
def attend_kernel(
    qkv, rotation, positions, slots, table_rows, tables, keys, values, q_gain, k_gain, partials, stats, counters, out,
    scale, cap, window, width, eps,
    HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, SPLIT: tl.constexpr, NUM_SPLITS: tl.constexpr,
    TILE: tl.constexpr, HAS_NORM: tl.constexpr, HAS_CAP: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Halves of heads are kept apart, as rotation pairs them."""
    HALF: tl.constexpr = DIM // 2
    kind = qkv.dtype.element_ty
    head = tl.program_id(0)
    split = tl.program_id(1)
    launch_dependents(IS_DEPENDENT)
    position = tl.load(positions)
    table = tables + tl.load(table_rows).to(tl.int64) * width
    slot = tl.load(slots)
    start = split * SPLIT
    first = first_key(position, window)
    if position < start or start + SPLIT <= first:  # padding too
        return
    # The cache is read first: nearly all of the time is waiting for it. It was written by earlier steps.
    end = tl.minimum(position, start + SPLIT)
    k1, k2, v1, v2 = _read(keys, values, table, head, start, first, end, HEADS, DIM, SIZE, TILE)
    low = tl.arange(0, HALF)
    cos = tl.load(rotation + position * DIM + low)[None, :]
    sin = tl.load(rotation + position * DIM + HALF + low)[None, :]
    wait_for_previous(IS_DEPENDENT)
    own = qkv + head * DIM + low[None, :]
    q1 = tl.load(own)  # [1, HALF]
    q2 = tl.load(own + HALF)
    own_k1 = tl.load(own + HEADS * DIM)
    own_k2 = tl.load(own + HEADS * DIM + HALF)
    own_v1 = tl.load(own + 2 * HEADS * DIM)
    own_v2 = tl.load(own + 2 * HEADS * DIM + HALF)
    if HAS_NORM:
        q1, q2 = normalise(q1, q2, q_gain, low, eps, DIM)
        own_k1, own_k2 = normalise(own_k1, own_k2, k_gain, low, eps, DIM)
    q1, q2 = rotate(q1, q2, cos, sin)
    q1 = q1.to(kind).to(tl.float32) * scale
    q2 = q2.to(kind).to(tl.float32) * scale
    own_k1, own_k2 = rotate(own_k1, own_k2, cos, sin)
    own_k1, own_k2 = kept(own_k1.to(kind), keys), kept(own_k2.to(kind), keys)
    own_v1, own_v2 = kept(own_v1, values), kept(own_v2, values)

    top = float("-inf")
    total = 0.0
    summed1 = tl.zeros([HALF], dtype=tl.float32)
    summed2 = tl.zeros([HALF], dtype=tl.float32)
    for offset in range(0, SPLIT, TILE):
        places = start + offset + tl.arange(0, TILE)
        is_own = places == position
        wide_k1 = tl.where(is_own[:, None], own_k1.to(tl.float32), k1.to(tl.float32))
        wide_k2 = tl.where(is_own[:, None], own_k2.to(tl.float32), k2.to(tl.float32))
        wide_v1 = tl.where(is_own[:, None], own_v1.to(tl.float32), v1.to(tl.float32))
        wide_v2 = tl.where(is_own[:, None], own_v2.to(tl.float32), v2.to(tl.float32))
        scores = tl.sum(q1 * wide_k1 + q2 * wide_k2, axis=1)  # [TILE]
        if HAS_CAP:
            scores = capped(scores, cap)
        scores = tl.where((places <= position) & (places >= first), scores, float("-inf"))
        largest = tl.maximum(top, tl.max(scores, axis=0))
        safe = tl.where(largest == float("-inf"), 0.0, largest)  # a window may begin behind the tile
        shrink = tl.exp(top - safe)
        shares = tl.exp(scores - safe)
        total = total * shrink + tl.sum(shares, axis=0)
        summed1 = summed1 * shrink + tl.sum(shares[:, None] * wide_v1, axis=0)
        summed2 = summed2 * shrink + tl.sum(shares[:, None] * wide_v2, axis=0)
        top = largest
        k1, k2, v1, v2 = _read(keys, values, table, head, start + offset + TILE, first, end, HEADS, DIM, SIZE, TILE)

    if position < start + SPLIT:
        memory = ((slot // SIZE).to(tl.int64) * HEADS + head) * SIZE * DIM + (slot % SIZE) * DIM + low[None, :]
        tl.store(keys + memory, own_k1)
        tl.store(keys + memory + HALF, own_k2)
        tl.store(values + memory, own_v1)
        tl.store(values + memory + HALF, own_v2)

    place = head * NUM_SPLITS + split
    tl.store(stats + place * 2, top)
    tl.store(stats + place * 2 + 1, total)
    tl.store(partials + place * DIM + low, summed1)
    tl.store(partials + place * DIM + HALF + low, summed2)
    tl.debug_barrier()  # all of the program's stores come before it is counted
    num_before = tl.atomic_add(counters + head, 1, sem="acq_rel")
    first_split = first // SPLIT
    if num_before == position // SPLIT - first_split:
        tl.store(counters + head, 0)
        splits = tl.arange(0, NUM_SPLITS)
        is_there = (splits >= first_split) & (splits <= position // SPLIT)
        parts = head * NUM_SPLITS + splits
        tops = tl.load(stats + parts * 2, mask=is_there, other=float("-inf"), cache_modifier=".cg")
        totals = tl.load(stats + parts * 2 + 1, mask=is_there, other=0.0, cache_modifier=".cg")
        grow = tl.exp(tops - tl.max(tops, axis=0))
        joined = tl.sum(totals * grow, axis=0)
        spots = parts[:, None] * DIM + low[None, :]
        part1 = tl.load(partials + spots, mask=is_there[:, None], other=0.0, cache_modifier=".cg")
        part2 = tl.load(partials + spots + HALF, mask=is_there[:, None], other=0.0, cache_modifier=".cg")
        target = out + head * DIM + low
        tl.store(target, (tl.sum(part1 * grow[:, None], axis=0) / joined).to(kind))
        tl.store(target + HALF, (tl.sum(part2 * grow[:, None], axis=0) / joined).to(kind))


@triton.jit
def _read(
    keys, values, table, head, start, first, end,
    HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Halves of a tile of keys and of values, each [TILE, DIM / 2]; 0 where a place is not in first : end."""
    places = start + tl.arange(0, TILE)
    is_there = (places >= first) & (places < end)
    blocks = tl.load(table + places // SIZE, mask=is_there, other=0).to(tl.int64)
    rows = (blocks * HEADS + head) * SIZE + places % SIZE
    memory = rows[:, None] * DIM + tl.arange(0, DIM // 2)[None, :]
    is_there = is_there[:, None]
    k1 = tl.load(keys + memory, mask=is_there, other=0.0)
    k2 = tl.load(keys + memory + DIM // 2, mask=is_there, other=0.0)
    v1 = tl.load(values + memory, mask=is_there, other=0.0)
    v2 = tl.load(values + memory + DIM // 2, mask=is_there, other=0.0)
    return k1, k2, v1, v2
