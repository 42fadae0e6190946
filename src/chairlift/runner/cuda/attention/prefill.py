"""Attention of long prompt chunks in Triton: a tile of queries of one chunk against all keys up to its end."""

import triton
import triton.language as tl

from chairlift.runner.cuda.attention.paged import LOG2_E
from chairlift.runner.cuda.kernels import capped


@triton.jit
def prefill_kernel(
    q, keys, values, tables, tiles, out, scale, cap, window, width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, TILE: tl.constexpr, HAS_CAP: tl.constexpr,
):  # fmt: skip
    """tiles [N, 4]: first row of the step, number of queries, position of the first, row of the block table."""
    tile = tl.num_programs(1) - 1 - tl.program_id(1)  # later tiles see more keys: they begin first
    head = tl.program_id(0)
    row = tl.load(tiles + tile * 4).to(tl.int64)
    count = tl.load(tiles + tile * 4 + 1)
    position = tl.load(tiles + tile * 4 + 2)
    table = tables + tl.load(tiles + tile * 4 + 3).to(tl.int64) * width
    members = tl.arange(0, QUERIES)
    is_query = members < count
    place = (row + members)[:, None] * HEADS * DIM + head * DIM + tl.arange(0, DIM)[None, :]
    queries = tl.load(q + place, mask=is_query[:, None], other=0.0)  # [QUERIES, DIM]
    own = position + members
    kv_head = head // (HEADS // KV_HEADS)
    steep = scale * LOG2_E
    steep_cap = cap * LOG2_E
    top = tl.full([QUERIES], float("-inf"), dtype=tl.float32)
    total = tl.zeros([QUERIES], dtype=tl.float32)
    summed = tl.zeros([QUERIES, DIM], dtype=tl.float32)
    first = 0
    full = (position + 1) // TILE * TILE  # keys before this are seen by every query
    if window > 0:
        first = tl.maximum(position + 1 - window, 0) // TILE * TILE
        full = first
    for low in range(first, full, TILE):
        top, total, summed = _walk(
            queries, keys, values, table, low, position + count, own, steep, steep_cap, window, top, total, summed,
            kv_head, KV_HEADS, DIM, SIZE, TILE, False, HAS_CAP,
        )  # fmt: skip
    for low in range(full, position + count, TILE):
        top, total, summed = _walk(
            queries, keys, values, table, low, position + count, own, steep, steep_cap, window, top, total, summed,
            kv_head, KV_HEADS, DIM, SIZE, TILE, True, HAS_CAP,
        )  # fmt: skip
    total = tl.where(is_query, total, 1.0)  # rows beyond the chunk may have seen nothing
    tl.store(out + place, (summed / total[:, None]).to(out.dtype.element_ty), mask=is_query[:, None])


@triton.jit
def _walk(
    queries, keys, values, table, low, end, own, steep, steep_cap, window, top, total, summed, kv_head,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr, IS_EDGE: tl.constexpr,
    HAS_CAP: tl.constexpr,
):  # fmt: skip
    """One tile of keys; at the edge not every query sees every key."""
    places = low + tl.arange(0, TILE)
    dims = tl.arange(0, DIM)
    if IS_EDGE:
        blocks = tl.load(table + places // SIZE, mask=places < end, other=0).to(tl.int64)
    else:
        blocks = tl.load(table + places // SIZE).to(tl.int64)
    offsets = ((blocks * KV_HEADS + kv_head) * SIZE * DIM + (places % SIZE) * DIM)[:, None] + dims[None, :]
    if IS_EDGE:
        is_there = (places < end)[:, None]
        k = tl.load(keys + offsets, mask=is_there, other=0.0)  # [TILE, DIM]
        v = tl.load(values + offsets, mask=is_there, other=0.0)
    else:
        k = tl.load(keys + offsets)
        v = tl.load(values + offsets)
    scores = tl.dot(queries, tl.trans(k.to(queries.dtype)), input_precision="ieee") * steep
    if HAS_CAP:
        scores = capped(scores, steep_cap)
    if IS_EDGE:
        is_seen = places[None, :] <= own[:, None]
        if window > 0:
            is_seen = is_seen & (places[None, :] > own[:, None] - window)
        scores = tl.where(is_seen, scores, float("-inf"))
    largest = tl.maximum(top, tl.max(scores, axis=1))
    safe = largest
    if IS_EDGE:
        safe = tl.where(largest == float("-inf"), 0.0, largest)
    shrink = tl.exp2(top - safe)
    shares = tl.exp2(scores - safe[:, None])
    total = total * shrink + tl.sum(shares, axis=1)
    summed = summed * shrink[:, None]
    summed = tl.dot(shares.to(queries.dtype), v.to(queries.dtype), summed, input_precision="ieee")
    return largest, total, summed
