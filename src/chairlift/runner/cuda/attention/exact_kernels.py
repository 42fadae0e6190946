"""Attention over pages whose bits depend on the query, its position and its own text alone: for `--exact`.

Keys are walked in tiles of absolute positions; each stretch of SPLIT keys is summed up from nothing, and stretches are
joined in order: by one program that walks all of them, for a row or for a tile of a prompt's rows, or by `join_kernel`
where each has its own program.

Always: a sum is either a dot, which tensor cores add up in the order of keys or dimensions, or part of `join`. Nothing
is summed across threads, as their number differs between kernels, and multiplications and additions are not fused (the
launches say so), as the compiler would not do it in the same places everywhere. Unseen keys add exact zeros.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.attention.pages import LOG2_E, first_key, prompt_tile, read, score


@triton.jit(do_not_specialize=["num_splits"])
def exact_rows_kernel(
    q, keys, values, tables, table_rows, positions, partials, stats, sinks, out, scale, cap, window, width, num_splits,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    SPLIT: tl.constexpr, TILE: tl.constexpr, IS_WHOLE: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """A row and a head of keys a program, and unless IS_WHOLE a stretch."""
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    position = tl.load(positions + row)
    first = first_key(position, window)
    start = first
    end = position + 1
    if not IS_WHOLE:
        start = tl.maximum(first, split * SPLIT)
        end = tl.minimum(end, split * SPLIT + SPLIT)
    if start >= end:
        return
    members = tl.arange(0, GROUP)
    num_members: tl.constexpr = HEADS // KV_HEADS
    dims = tl.arange(0, DIM)
    heads = kv_head * num_members + members
    is_member = members < num_members
    place = row * HEADS + heads
    queries = tl.load(q + place[:, None] * DIM + dims[None, :], mask=is_member[:, None], other=0.0)  # [GROUP, DIM]
    table = tables + tl.load(table_rows + row).to(tl.int64) * width
    own = tl.zeros([GROUP], dtype=tl.int32) + position
    steep = scale * LOG2_E
    steep_cap = cap * LOG2_E
    top, total, summed = nothing(GROUP, DIM)
    all_top, all_total, all_summed = nothing(GROUP, DIM)
    for low in range(start // TILE * TILE, end, TILE):
        if IS_WHOLE and low % SPLIT == 0:
            all_top, all_total, all_summed = join(all_top, all_total, all_summed, top, total, summed)
            top, total, summed = nothing(GROUP, DIM)
        top, total, summed = walk(
            queries, keys, values, table, low, first, end, own, steep, steep_cap, window, top, total, summed,
            kv_head, KV_HEADS, DIM, SIZE, TILE, True, HAS_CAP,
        )  # fmt: skip
    if IS_WHOLE:
        top, total, summed = join(all_top, all_total, all_summed, top, total, summed)
        if HAS_SINKS:
            total += tl.exp2(tl.load(sinks + heads, mask=is_member, other=0.0) * LOG2_E - top)
        target = out + place[:, None] * DIM + dims[None, :]
        tl.store(target, (summed / total[:, None]).to(out.dtype.element_ty), mask=is_member[:, None])
    else:
        place = place * num_splits + split
        tl.store(stats + place * 2, top, mask=is_member)
        tl.store(stats + place * 2 + 1, total, mask=is_member)
        tl.store(partials + place[:, None] * DIM + dims[None, :], summed, mask=is_member[:, None])


@triton.jit(do_not_specialize=["num_splits"])
def join_kernel(
    partials, stats, positions, sinks, out, window, num_splits,
    HEADS: tl.constexpr, DIM: tl.constexpr, SPLIT: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """A row and a head a program: the stretches that `exact_rows_kernel` left, in order."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dims = tl.arange(0, DIM)
    position = tl.load(positions + row)
    if position < 0:
        return
    first = first_key(position, window) // SPLIT
    place = (row * HEADS + head) * num_splits
    top, total, summed = fold(partials, stats, place, first, position // SPLIT, DIM)
    if HAS_SINKS:
        total += tl.exp2(tl.load(sinks + head) * LOG2_E - top)
    target = out + (row * HEADS + head) * DIM + dims[None, :]
    tl.store(target, (summed / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def fold(partials, stats, place, first, last, DIM: tl.constexpr):
    """The stretches first..last of a row and head, joined in order: largest score [1], sum of shares [1], weighted
    values [1, DIM].

    Several are read at once, as waiting for each would take longer than all else."""
    dims = tl.arange(0, DIM)
    top, total, summed = nothing(1, DIM)
    for low in range(first, last + 1, 8):
        for i in tl.static_range(8):
            spots = place + low + i + tl.arange(0, 1)
            is_there = low + i + tl.arange(0, 1) <= last
            next_top = tl.load(stats + spots * 2, mask=is_there, other=float("-inf"), cache_modifier=".cg")
            next_total = tl.load(stats + spots * 2 + 1, mask=is_there, other=0.0, cache_modifier=".cg")
            memory = partials + spots[:, None] * DIM + dims[None, :]
            part = tl.load(memory, mask=is_there[:, None], other=0.0, cache_modifier=".cg")
            top, total, summed = join(top, total, summed, next_top, next_total, part)
    return top, total, summed


@triton.jit
def exact_prompt_kernel(
    q, keys, values, tables, tiles, sinks, out, scale, cap, window, width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """A tile of queries of a prompt chunk (`prompt_tile`) and a head a program."""
    queries, place, is_query, position, count, table = prompt_tile(q, tables, tiles, width, HEADS, DIM, QUERIES)
    own = position + tl.arange(0, QUERIES)
    kv_head = tl.program_id(0) // (HEADS // KV_HEADS)
    steep = scale * LOG2_E
    steep_cap = cap * LOG2_E
    first = first_key(position, window)
    full = (position + 1) // TILE * TILE  # keys before this are seen by every query
    if window > 0:
        full = 0
    end = position + count
    top, total, summed = nothing(QUERIES, DIM)
    all_top, all_total, all_summed = nothing(QUERIES, DIM)
    for low in range(0, full, TILE):
        if low % SPLIT == 0:
            all_top, all_total, all_summed = join(all_top, all_total, all_summed, top, total, summed)
            top, total, summed = nothing(QUERIES, DIM)
        top, total, summed = walk(
            queries, keys, values, table, low, first, end, own, steep, steep_cap, window, top, total, summed,
            kv_head, KV_HEADS, DIM, SIZE, TILE, False, HAS_CAP,
        )  # fmt: skip
    for low in range(tl.maximum(full, first // TILE * TILE), end, TILE):
        if low % SPLIT == 0:
            all_top, all_total, all_summed = join(all_top, all_total, all_summed, top, total, summed)
            top, total, summed = nothing(QUERIES, DIM)
        top, total, summed = walk(
            queries, keys, values, table, low, first, end, own, steep, steep_cap, window, top, total, summed,
            kv_head, KV_HEADS, DIM, SIZE, TILE, True, HAS_CAP,
        )  # fmt: skip
    top, total, summed = join(all_top, all_total, all_summed, top, total, summed)
    if HAS_SINKS:
        total += tl.exp2(tl.load(sinks + tl.program_id(0)) * LOG2_E - top)
    total = tl.where(is_query, total, 1.0)  # rows beyond the chunk may have seen nothing
    tl.store(out + place, (summed / total[:, None]).to(out.dtype.element_ty), mask=is_query[:, None])


@triton.jit
def nothing(ROWS: tl.constexpr, DIM: tl.constexpr):
    """The largest score, the sum of shares and the weighted values of no keys."""
    top = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    return top, tl.zeros([ROWS], dtype=tl.float32), tl.zeros([ROWS, DIM], dtype=tl.float32)


@triton.jit
def join(top, total, summed, next_top, next_total, next_summed):
    """Two stretches as one. With nothing, on either side, the other stays as it is, bit by bit."""
    largest = tl.maximum(top, next_top)
    safe = tl.where(largest == float("-inf"), 0.0, largest)
    shrink = tl.exp2(top - safe)
    grow = tl.exp2(next_top - safe)
    summed = summed * shrink[:, None] + next_summed * grow[:, None]
    return largest, total * shrink + next_total * grow, summed


@triton.jit
def walk(
    queries, keys, values, table, low, first, end, own, steep, steep_cap, window, top, total, summed, kv_head,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr, IS_EDGE: tl.constexpr,
    HAS_CAP: tl.constexpr,
):  # fmt: skip
    """One more tile of keys, of which first..end may be read; at the edge not every query sees every key."""
    k, v = read(keys, values, table, low, first, end, kv_head, KV_HEADS, DIM, SIZE, TILE, IS_EDGE)
    return weigh(queries, k, v, low, own, steep, steep_cap, window, top, total, summed, TILE, IS_EDGE, HAS_CAP)


@triton.jit
def weigh(
    queries, k, v, low, own, steep, steep_cap, window, top, total, summed, TILE: tl.constexpr, IS_EDGE: tl.constexpr,
    HAS_CAP: tl.constexpr,
):  # fmt: skip
    """What is known of the keys so far, and a tile of them that begins at `low`."""
    largest, shrink, shares = score(queries, k, low, own, steep, steep_cap, window, top, TILE, IS_EDGE, HAS_CAP)
    shares = shares.to(queries.dtype)
    # The shares are added up by a dot too, so that their order is that of the keys whatever the threads are.
    ones = tl.full([TILE, 16], 1.0, dtype=tl.float32).to(queries.dtype)
    total = total * shrink + tl.max(tl.dot(shares, ones, input_precision="ieee"), axis=1)
    summed = tl.dot(shares, v.to(queries.dtype), summed * shrink[:, None], input_precision="ieee")
    return largest, total, summed
