"""`rotate_store_kernel`, `exact_rows_kernel` and `join_kernel` in one kernel for a single row: the same bits by fewer
launches.

One program a kv head and a stretch. The one that holds the row's own position stores its key and value and uses them as
they will be read; no other needs them. The last program of a head to finish joins the stretches.

Always: `counters` is all 0 between launches. Multiplications and additions are not fused.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.attention.exact_kernels import fold, nothing, weigh
from chairlift.runner.cuda.attention.pages import LOG2_E, first_key, read
from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import kept


@triton.jit(do_not_specialize=["num_splits"])
def exact_one_row_kernel(
    qkv, rotation, positions, slots, table_rows, tables, keys, values, partials, stats, counters, out,
    scale, cap, window, width, num_splits,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    SPLIT: tl.constexpr, TILE: tl.constexpr, HAS_CAP: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = DIM // 2
    num_members: tl.constexpr = HEADS // KV_HEADS
    kind = qkv.dtype.element_ty
    kv_head = tl.program_id(0)
    split = tl.program_id(1)
    launch_dependents(IS_DEPENDENT)
    position = tl.load(positions)
    table = tables + tl.load(table_rows).to(tl.int64) * width
    first = first_key(position, window)
    low = split * SPLIT
    start = tl.maximum(first, low)
    end = tl.minimum(position + 1, low + SPLIT)
    if start >= end:  # padding too
        return
    # The stretch is read first: most of the time is waiting for it. The cache was written by earlier steps.
    tl.static_assert(SPLIT == 2 * TILE)
    known = tl.minimum(position, end)
    k1, v1 = read(keys, values, table, low, first, known, kv_head, KV_HEADS, DIM, SIZE, TILE, True)
    k2, v2 = read(keys, values, table, low + TILE, first, known, kv_head, KV_HEADS, DIM, SIZE, TILE, True)
    dims = tl.arange(0, DIM)
    cos = tl.load(rotation + position * DIM + dims % HALF)
    sin = tl.load(rotation + position * DIM + HALF + dims % HALF)
    wait_for_previous(IS_DEPENDENT)
    members = tl.arange(0, GROUP)
    is_member = members < num_members
    heads = kv_head * num_members + members
    queries = _rotated(qkv, heads, is_member, cos, sin, DIM).to(kind)
    line = HEADS + kv_head + tl.arange(0, 1)
    own_k = kept(_rotated(qkv, line, line >= 0, cos, sin, DIM), keys)  # [1, DIM]
    own_v = kept(tl.load(qkv + (line[:, None] + KV_HEADS) * DIM + dims[None, :]), values)
    if end == position + 1:
        slot = tl.load(slots)
        memory = ((slot // SIZE).to(tl.int64) * KV_HEADS + kv_head) * SIZE * DIM + (slot % SIZE) * DIM + dims[None, :]
        tl.store(keys + memory, own_k)
        tl.store(values + memory, own_v)
    own = tl.zeros([GROUP], dtype=tl.int32) + position
    steep = scale * LOG2_E
    steep_cap = cap * LOG2_E
    top, total, summed = nothing(GROUP, DIM)
    if start < low + TILE:
        is_own = (low + tl.arange(0, TILE) == position)[:, None]
        top, total, summed = weigh(
            queries, tl.where(is_own, own_k, k1), tl.where(is_own, own_v, v1), low, own, steep, steep_cap,
            window, top, total, summed, TILE, True, HAS_CAP,
        )  # fmt: skip
    if low + TILE < end:
        is_own = (low + TILE + tl.arange(0, TILE) == position)[:, None]
        top, total, summed = weigh(
            queries, tl.where(is_own, own_k, k2), tl.where(is_own, own_v, v2), low + TILE, own, steep, steep_cap,
            window, top, total, summed, TILE, True, HAS_CAP,
        )  # fmt: skip
    place = heads * num_splits + split
    tl.store(stats + place * 2, top, mask=is_member)
    tl.store(stats + place * 2 + 1, total, mask=is_member)
    tl.store(partials + place[:, None] * DIM + dims[None, :], summed, mask=is_member[:, None])
    tl.debug_barrier()  # all of the program's stores come before it is counted
    num_before = tl.atomic_add(counters + kv_head, 1, sem="acq_rel")
    if num_before == position // SPLIT - first // SPLIT:
        tl.store(counters + kv_head, 0)
        for member in tl.static_range(num_members):
            head = kv_head * num_members + member
            _, shares, joined = fold(partials, stats, head * num_splits, first // SPLIT, position // SPLIT, DIM)
            tl.store(out + head * DIM + dims[None, :], (joined / shares[:, None]).to(kind))


@triton.jit
def _rotated(qkv, heads, is_head, cos, sin, DIM: tl.constexpr):
    """As `rotate` has it, but both halves in one piece, each number beside its partner [heads, DIM]: joined from
    halves, the compiler would take them to the tensor cores in another order than those of other rows."""
    HALF: tl.constexpr = DIM // 2
    dims = tl.arange(0, DIM)
    source = qkv + heads[:, None] * DIM
    plain = tl.load(source + dims[None, :], mask=is_head[:, None], other=0.0).to(tl.float32)
    partner = tl.load(source + ((dims + HALF) % DIM)[None, :], mask=is_head[:, None], other=0.0).to(tl.float32)
    straight = plain * cos[None, :]
    turned = partner * sin[None, :]
    return tl.where(dims[None, :] < HALF, straight - turned, straight + turned)
