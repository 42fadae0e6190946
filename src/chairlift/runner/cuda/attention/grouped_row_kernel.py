"""Attention of a single row in one kernel where several query heads share keys: norms, rotation, the cache write, the
walk over its context and the join.

One program a kv head and a stretch of the context, which it reads before the kernels ahead have ended. The one that
holds the row's own position stores its key and value and uses them as they will be read. The last program of a head to
finish joins the stretches, in order.

Always: `counters` is all 0 between launches. A layer without rows of its own finds the row's key in the cache, written
by a kernel ahead.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.attention.pages import LOG2_E, first_key, read, score
from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import kept

_AT_ONCE = tl.constexpr(4)  # stretches that are read before they are joined


@triton.jit(do_not_specialize=["num_splits"])
def grouped_row_kernel(
    qkv, rotation, positions, slots, table_rows, tables, keys, values, q_gain, k_gain, v_gain, partials, stats,
    counters, out, scale, cap, window, width, num_splits, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    SPLIT: tl.constexpr, HAS_OWN: tl.constexpr, HAS_NORM: tl.constexpr, HAS_VALUE_NORM: tl.constexpr,
    HAS_VALUES: tl.constexpr, HAS_CAP: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Stretches are counted from the first that the row sees."""
    num_members: tl.constexpr = HEADS // KV_HEADS
    kind = qkv.dtype.element_ty
    kv_head = tl.program_id(0)
    stretch = tl.program_id(1)
    launch_dependents(IS_DEPENDENT)
    position = tl.load(positions)
    slot = tl.load(slots)
    table = tables + tl.load(table_rows).to(tl.int64) * width
    first = first_key(position, window)
    low = (first // SPLIT + stretch) * SPLIT
    if position < low:  # padding too
        return
    k, v = read(keys, values, table, low, first, position, kv_head, KV_HEADS, DIM, SIZE, SPLIT, True)
    dims = tl.arange(0, DIM)
    cos = tl.load(rotation + position * DIM + dims % (DIM // 2))
    sin = tl.load(rotation + position * DIM + DIM // 2 + dims % (DIM // 2))
    wait_for_previous(IS_DEPENDENT)
    members = tl.arange(0, GROUP)
    is_member = members < num_members
    heads = kv_head * num_members + members
    queries = _turned(qkv, heads, is_member, q_gain, cos, sin, eps, DIM, HAS_NORM)
    if low + SPLIT > position:
        line = HEADS + kv_head + tl.arange(0, 1)
        memory = ((slot // SIZE).to(tl.int64) * KV_HEADS + kv_head) * SIZE * DIM + (slot % SIZE) * DIM + dims[None, :]
        if HAS_OWN:
            own_k = kept(_turned(qkv, line, line >= 0, k_gain, cos, sin, eps, DIM, HAS_NORM), keys)  # [1, DIM]
            own_v = tl.load(qkv + (line[:, None] + HAS_VALUES * KV_HEADS) * DIM + dims[None, :])
            if HAS_VALUE_NORM:
                own_v = _normed(own_v.to(tl.float32), own_v.to(tl.float32), v_gain, dims, eps, DIM).to(kind)
            own_v = kept(own_v, values)
            tl.store(keys + memory, own_k)
            tl.store(values + memory, own_v)
        else:
            own_k = tl.load(keys + memory)
            own_v = tl.load(values + memory)
        is_own = (low + tl.arange(0, SPLIT) == position)[:, None]
        k = tl.where(is_own, own_k, k)
        v = tl.where(is_own, own_v, v)
    top = tl.full([GROUP], float("-inf"), dtype=tl.float32)
    own = tl.zeros([GROUP], dtype=tl.int32) + position
    top, _, shares = score(
        queries, k, low, own, scale * LOG2_E, cap * LOG2_E, window, top, SPLIT, True, HAS_CAP
    )  # fmt: skip
    total = tl.sum(shares, axis=1)
    summed = tl.dot(shares.to(kind), v.to(kind), input_precision="ieee")
    last = position // SPLIT - first // SPLIT
    target = out + heads[:, None] * DIM + dims[None, :]
    if last == 0:
        tl.store(target, (summed / total[:, None]).to(kind), mask=is_member[:, None])
    else:
        place = heads * num_splits + stretch
        tl.store(stats + place * 2, top, mask=is_member)
        tl.store(stats + place * 2 + 1, total, mask=is_member)
        tl.store(partials + place[:, None] * DIM + dims[None, :], summed, mask=is_member[:, None])
        tl.debug_barrier()  # all of the program's stores come before it is counted
        if tl.atomic_add(counters + kv_head, 1, sem="acq_rel") == last:
            tl.store(counters + kv_head, 0)
            joined = _joined(partials, stats, heads * num_splits, is_member, last, GROUP, DIM)
            tl.store(target, joined.to(kind), mask=is_member[:, None])


@triton.jit
def _turned(
    qkv, heads, is_head, gain, cos, sin, eps, DIM: tl.constexpr, HAS_NORM: tl.constexpr
):  # fmt: skip
    """Heads after norm and rotation, each number beside its partner, rounded [heads, DIM]"""
    HALF: tl.constexpr = DIM // 2
    kind = qkv.dtype.element_ty
    dims = tl.arange(0, DIM)
    partners = (dims + HALF) % DIM
    source = qkv + heads[:, None] * DIM
    plain = tl.load(source + dims[None, :], mask=is_head[:, None], other=0.0).to(tl.float32)
    partner = tl.load(source + partners[None, :], mask=is_head[:, None], other=0.0).to(tl.float32)
    if HAS_NORM:  # rounded before it is rotated, as `normalise` does
        partner = _normed(partner, plain, gain, partners, eps, DIM).to(kind).to(tl.float32)
        plain = _normed(plain, plain, gain, dims, eps, DIM).to(kind).to(tl.float32)
    straight = plain * cos[None, :]
    turned = partner * sin[None, :]
    return tl.where(dims[None, :] < HALF, straight - turned, straight + turned).to(kind)


@triton.jit
def _normed(x, whole, gain, dims, eps, DIM: tl.constexpr):
    """x [heads, DIM], numbers at `dims` of heads that are `whole`"""
    return x * tl.rsqrt(tl.sum(whole * whole, axis=1) / DIM + eps)[:, None] * tl.load(gain + dims)[None, :]


@triton.jit
def _joined(partials, stats, place, is_member, last, GROUP: tl.constexpr, DIM: tl.constexpr):
    dims = tl.arange(0, DIM)
    top = tl.full([GROUP], float("-inf"), dtype=tl.float32)
    total = tl.zeros([GROUP], dtype=tl.float32)
    summed = tl.zeros([GROUP, DIM], dtype=tl.float32)
    for low in range(0, last + 1, _AT_ONCE):
        for i in tl.static_range(_AT_ONCE):
            spots = place + low + i
            is_there = is_member & (low + i <= last)
            own = tl.load(stats + spots * 2, mask=is_there, other=float("-inf"), cache_modifier=".cg")
            more = tl.load(stats + spots * 2 + 1, mask=is_there, other=0.0, cache_modifier=".cg")
            memory = partials + spots[:, None] * DIM + dims[None, :]
            part = tl.load(memory, mask=is_there[:, None], other=0.0, cache_modifier=".cg")
            largest = tl.maximum(top, own)
            safe = tl.where(largest == float("-inf"), 0.0, largest)  # of no member
            shrink, grow = tl.exp2(top - safe), tl.exp2(own - safe)
            total = total * shrink + more * grow
            summed = summed * shrink[:, None] + part * grow[:, None]
            top = largest
    return summed / tl.where(is_member, total, 1.0)[:, None]
