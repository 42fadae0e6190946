"""What attention kernels share, in Triton: the keys that a query sees, tiles of queries and of keys, their scores, and
lists of pages for FlashInfer.

Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.kernels import capped

LOG2_E = tl.constexpr(1.4426950408889634)  # for powers of two instead of e's: they are faster


@triton.jit
def first_key(position, window):
    """The first position that a query sees; window 0: no limit."""
    first = 0
    if window > 0:
        first = tl.maximum(position + 1 - window, 0)
    return first


@triton.jit
def prompt_tile(q, tables, tiles, width, HEADS: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr):
    """A program's queries [QUERIES, DIM], where they are, which are there, position of the first, their number, their
    block table.

    tiles [N, 4]: first row of the step, number of queries, position of the first, row of the block table."""
    tile = tl.num_programs(1) - 1 - tl.program_id(1)  # later tiles see more keys: they begin first
    row = tl.load(tiles + tile * 4).to(tl.int64)
    count = tl.load(tiles + tile * 4 + 1)
    position = tl.load(tiles + tile * 4 + 2)
    table = tables + tl.load(tiles + tile * 4 + 3).to(tl.int64) * width
    members = tl.arange(0, QUERIES)
    is_query = members < count
    place = (row + members)[:, None] * HEADS * DIM + tl.program_id(0) * DIM + tl.arange(0, DIM)[None, :]
    queries = tl.load(q + place, mask=is_query[:, None], other=0.0)
    return queries, place, is_query, position, count, table


@triton.jit
def read(
    keys, values, table, low, first, end, kv_head,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr, IS_EDGE: tl.constexpr,
):  # fmt: skip
    """A tile of keys and one of values, each [TILE, DIM]; at the edge 0 outside of first..end."""
    places = low + tl.arange(0, TILE)
    dims = tl.arange(0, DIM)
    if IS_EDGE:
        is_there = (places >= first) & (places < end)
        blocks = tl.load(table + places // SIZE, mask=is_there, other=0).to(tl.int64)
    else:
        blocks = tl.load(table + places // SIZE).to(tl.int64)
    offsets = ((blocks * KV_HEADS + kv_head) * SIZE * DIM + (places % SIZE) * DIM)[:, None] + dims[None, :]
    if IS_EDGE:
        k = tl.load(keys + offsets, mask=is_there[:, None], other=0.0)
        v = tl.load(values + offsets, mask=is_there[:, None], other=0.0)
    else:
        k = tl.load(keys + offsets)
        v = tl.load(values + offsets)
    return k, v


@triton.jit
def score(
    queries, k, low, own, steep, steep_cap, window, top,
    TILE: tl.constexpr, IS_EDGE: tl.constexpr, HAS_CAP: tl.constexpr,
):  # fmt: skip
    """A tile of keys that begins at `low`, queries being at `own`; at the edge not every query sees every key. -> the
    largest score so far, by what earlier sums shrink, shares [queries, TILE]"""
    places = low + tl.arange(0, TILE)
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
    return largest, tl.exp2(top - safe), tl.exp2(scores - safe[:, None])


@triton.jit
def list_pages_kernel(tables, table_rows, starts, pages, width, BLOCK: tl.constexpr):
    """One request a program: pages[starts[r] : starts[r + 1]] become the first entries of its row of the tables."""
    request = tl.program_id(0)
    start = tl.load(starts + request)
    count = tl.load(starts + request + 1) - start
    table = tables + tl.load(table_rows + request).to(tl.int64) * width
    for low in range(0, count, BLOCK):
        places = low + tl.arange(0, BLOCK)
        is_there = places < count
        tl.store(pages + start + places, tl.load(table + places, mask=is_there), mask=is_there)
