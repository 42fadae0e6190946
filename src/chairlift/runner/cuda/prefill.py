"""Attention of long prompt chunks in Triton: a tile of queries of one chunk against all keys up to its end."""

import triton
import triton.language as tl


@triton.jit
def prefill_kernel(
    q, keys, values, tables, tiles, out, scale, window, width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """tiles [N, 4]: first row of the step, number of queries, position of the first, row of the block table."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(tiles + tile * 4).to(tl.int64)
    count = tl.load(tiles + tile * 4 + 1)
    position = tl.load(tiles + tile * 4 + 2)
    table = tables + tl.load(tiles + tile * 4 + 3).to(tl.int64) * width
    kv_head = head // (HEADS // KV_HEADS)
    members = tl.arange(0, QUERIES)
    dims = tl.arange(0, DIM)
    is_query = members < count
    place = (row + members)[:, None] * HEADS * DIM + head * DIM + dims[None, :]
    queries = tl.load(q + place, mask=is_query[:, None], other=0.0)  # [QUERIES, DIM]
    own = position + members
    top = tl.full([QUERIES], float("-inf"), dtype=tl.float32)
    total = tl.zeros([QUERIES], dtype=tl.float32)
    summed = tl.zeros([QUERIES, DIM], dtype=tl.float32)
    first = 0
    if window > 0:
        first = tl.maximum(position + 1 - window, 0) // TILE * TILE
    for low in range(first, position + count, TILE):
        places = low + tl.arange(0, TILE)
        is_there = places < position + count
        blocks = tl.load(table + places // SIZE, mask=is_there, other=0).to(tl.int64)
        offsets = (blocks * KV_HEADS + kv_head) * SIZE * DIM + (places % SIZE) * DIM
        k = tl.load(keys + offsets[:, None] + dims[None, :], mask=is_there[:, None], other=0.0)  # [TILE, DIM]
        k = k.to(queries.dtype)
        scores = tl.dot(queries, tl.trans(k), input_precision="ieee") * scale
        is_seen = places[None, :] <= own[:, None]
        if window > 0:
            is_seen = is_seen & (places[None, :] > own[:, None] - window)
        scores = tl.where(is_seen, scores, float("-inf"))
        largest = tl.maximum(top, tl.max(scores, axis=1))
        safe = tl.where(largest == float("-inf"), 0.0, largest)
        shrink = tl.exp(top - safe)
        shares = tl.exp(scores - safe[:, None])
        v = tl.load(values + offsets[:, None] + dims[None, :], mask=is_there[:, None], other=0.0)
        v = v.to(queries.dtype)
        total = total * shrink + tl.sum(shares, axis=1)
        summed = summed * shrink[:, None] + tl.dot(shares.to(v.dtype), v, input_precision="ieee")
        top = largest
    total = tl.where(is_query, total, 1.0)  # rows beyond the chunk may have seen nothing
    tl.store(out + place, (summed / total[:, None]).to(out.dtype.element_ty), mask=is_query[:, None])
