"""Attention of long prompt chunks in Triton: a tile of queries of one chunk against all keys up to its end."""

import triton
import triton.language as tl

from chairlift.runner.cuda.attention.pages import LOG2_E, first_key, prompt_tile, read, score
from chairlift.runner.cuda.attention.tiling import LARGE_HEAD

_TILE, _HALVES = 64, 2  # keys at a time; bytes of the numbers of which two such tiles are on their way


def prompt_options(head_dim: int, itemsize: int) -> dict[str, int]:
    """Of large heads fewer keys at a time, by more warps: shared memory and registers hold no more."""
    if head_dim <= LARGE_HEAD:
        return {"TILE": _TILE, "num_warps": 4, "num_stages": 2}
    is_half = itemsize <= _HALVES
    return {"TILE": _TILE // 2 if is_half else _TILE // 4, "num_warps": 8, "num_stages": 2 if is_half else 1}


@triton.jit
def prefill_kernel(
    q, keys, values, tables, tiles, sinks, out, scale, cap, window, width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, TILE: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """A tile of queries (`prompt_tile`) and a head a program."""
    queries, place, is_query, position, count, table = prompt_tile(q, tables, tiles, width, HEADS, DIM, QUERIES)
    own = position + tl.arange(0, QUERIES)
    kv_head = tl.program_id(0) // (HEADS // KV_HEADS)
    steep = scale * LOG2_E
    steep_cap = cap * LOG2_E
    top = tl.full([QUERIES], float("-inf"), dtype=tl.float32)
    total = tl.zeros([QUERIES], dtype=tl.float32)
    summed = tl.zeros([QUERIES, DIM], dtype=tl.float32)
    first = first_key(position, window)  # keys before it may be another's
    begin = first // TILE * TILE
    full = (position + 1) // TILE * TILE  # keys before this are seen by every query
    if window > 0:
        full = begin
    for low in range(begin, full, TILE):
        top, total, summed = _walk(
            queries, keys, values, table, low, first, position + count, own, steep, steep_cap, window, top, total,
            summed, kv_head, KV_HEADS, DIM, SIZE, TILE, False, HAS_CAP,
        )  # fmt: skip
    for low in range(full, position + count, TILE):
        top, total, summed = _walk(
            queries, keys, values, table, low, first, position + count, own, steep, steep_cap, window, top, total,
            summed, kv_head, KV_HEADS, DIM, SIZE, TILE, True, HAS_CAP,
        )  # fmt: skip
    if HAS_SINKS:
        total += tl.exp2(tl.load(sinks + tl.program_id(0)) * LOG2_E - top)
    total = tl.where(is_query, total, 1.0)  # rows beyond the chunk may have seen nothing
    tl.store(out + place, (summed / total[:, None]).to(out.dtype.element_ty), mask=is_query[:, None])


@triton.jit
def _walk(
    queries, keys, values, table, low, first, end, own, steep, steep_cap, window, top, total, summed, kv_head,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr, IS_EDGE: tl.constexpr,
    HAS_CAP: tl.constexpr,
):  # fmt: skip
    """One more tile of keys."""
    k, v = read(keys, values, table, low, first, end, kv_head, KV_HEADS, DIM, SIZE, TILE, IS_EDGE)
    largest, shrink, shares = score(queries, k, low, own, steep, steep_cap, window, top, TILE, IS_EDGE, HAS_CAP)
    total = total * shrink + tl.sum(shares, axis=1)
    summed = summed * shrink[:, None]
    summed = tl.dot(shares.to(queries.dtype), v.to(queries.dtype), summed, input_precision="ieee")
    return largest, total, summed
