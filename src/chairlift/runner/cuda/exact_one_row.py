"""What `rotate_store_kernel`, `exact_rows_kernel` and `join_kernel` do, in one kernel for a single row: the same bits
by fewer launches.

One program a head of keys and a stretch. The one whose stretch holds the row's own position stores its key and value
and reads them back; no other needs them. Who finishes last of a head joins the stretches.

Always: `counters` is all 0 between launches. Multiplications and additions are not fused, here as there.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.exact_attention import fold, nothing, walk
from chairlift.runner.cuda.kernels import _kept, _rotate


@triton.jit(do_not_specialize=["num_splits"])
def exact_one_row_kernel(
    qkv, rotation, positions, slots, table_rows, tables, keys, values, partials, stats, counters, out,
    scale, window, width, num_splits,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    SPLIT: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """GROUP is the number of query heads of a head of keys, rounded up to what the tensor cores take."""
    HALF: tl.constexpr = DIM // 2
    num_members: tl.constexpr = HEADS // KV_HEADS
    kind = qkv.dtype.element_ty
    kv_head = tl.program_id(0)
    split = tl.program_id(1)
    position = tl.load(positions)
    first = 0
    if window > 0:
        first = tl.maximum(position + 1 - window, 0)
    start = tl.maximum(first, split * SPLIT)
    end = tl.minimum(position + 1, split * SPLIT + SPLIT)
    if start >= end:  # padding too
        return
    low = tl.arange(0, HALF)
    cos = tl.load(rotation + position * DIM + low)[None, :]
    sin = tl.load(rotation + position * DIM + HALF + low)[None, :]
    if end == position + 1:
        slot = tl.load(slots)
        source = qkv + (HEADS + kv_head) * DIM + low[None, :]
        memory = ((slot // SIZE).to(tl.int64) * KV_HEADS + kv_head) * SIZE * DIM + (slot % SIZE) * DIM + low[None, :]
        k1, k2 = _rotate(tl.load(source), tl.load(source + HALF), cos, sin)
        tl.store(keys + memory, _kept(k1, keys))
        tl.store(keys + memory + HALF, _kept(k2, keys))
        source += KV_HEADS * DIM
        tl.store(values + memory, _kept(tl.load(source), values))
        tl.store(values + memory + HALF, _kept(tl.load(source + HALF), values))
        tl.debug_barrier()  # they are read below, by other threads
    members = tl.arange(0, GROUP)
    is_member = members < num_members
    heads = kv_head * num_members + members
    # Both halves in one piece, each number beside its partner: joined from halves, the compiler would take them to the
    # tensor cores in another order than those of other rows.
    dims = tl.arange(0, DIM)
    spot = heads[:, None] * DIM + dims[None, :]
    other = heads[:, None] * DIM + ((dims + HALF) % DIM)[None, :]
    plain = tl.load(qkv + spot, mask=is_member[:, None], other=0.0).to(tl.float32)  # [GROUP, DIM]
    partner = tl.load(qkv + other, mask=is_member[:, None], other=0.0).to(tl.float32)
    turned = partner * tl.load(rotation + position * DIM + HALF + dims % HALF)[None, :]
    plain = plain * tl.load(rotation + position * DIM + dims % HALF)[None, :]
    queries = tl.where(dims[None, :] < HALF, plain - turned, plain + turned).to(kind)
    table = tables + tl.load(table_rows).to(tl.int64) * width
    own = tl.zeros([GROUP], dtype=tl.int32) + position
    steep = scale * 1.4426950408889634
    top, total, summed = nothing(GROUP, DIM)
    for tile in range(start // TILE * TILE, end, TILE):
        top, total, summed = walk(
            queries, keys, values, table, tile, first, end, own, steep, window, top, total, summed,
            kv_head, KV_HEADS, DIM, SIZE, TILE, True,
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
            shares, joined = fold(partials, stats, head * num_splits, first // SPLIT, position // SPLIT, DIM)
            tl.store(out + head * DIM + dims[None, :], (joined / shares[:, None]).to(kind))
