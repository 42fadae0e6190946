"""Attention over pages in Triton, every query row by itself: decodes and prompt tokens alike.

Always: keys are walked in tiles of absolute positions and split at absolute multiples of `SPLIT`, so for one tiling the
order of sums depends on the position alone: a token gets the same bits in a prompt chunk and in a decode, in any batch.

    partial:  one program per (row, kv head, split)  -> max, sum, weighted values of its stretch; the result of a row
                                                        that has no other
    combine:  one program per (row, head)            -> the stretches joined in order

The number of splits is no constant: each would be compiled anew.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.attention.pages import first_key
from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import capped
from chairlift.runner.cuda.target import shared_memory

_FEWEST = 16  # rows that tensor cores take
_SMALL, _MIDDLE = 32, 64  # keys of a tile
_NARROW_HEAD, _WIDE_WARPS, _WIDE_STAGES = 128, 4, 3
JOINED = tl.constexpr(16)  # stretches at a time: one by one, each would be waited for


def group(heads: int, kv_heads: int) -> int:
    """GROUP of the kernels: query heads of a kv head, rounded up to what tensor cores take."""
    return max(_FEWEST, triton.next_power_of_2(heads // kv_heads))


def fitting(tile: int, head_dim: int, itemsize: int) -> int:
    """Keys of a tile: as many, or fewer where shared memory does not hold all that is on its way, or two tiles."""
    while tile > _MIDDLE and 3 * both(tile, head_dim, itemsize) > shared_memory():
        tile //= 2
    while tile > _FEWEST and 2 * both(tile, head_dim, itemsize) > shared_memory():
        tile //= 2
    return tile


def grouped_options(tile: int, warps: int, head_dim: int, itemsize: int) -> dict[str, int]:
    """Of `partial_kernel`. Few warps do not hold the sums and queries of wide heads in their registers; of heads of 256
    and 512 numbers these were the fastest on an H200, or nearly."""
    if head_dim > _NARROW_HEAD and warps < _WIDE_WARPS:
        tile, warps = min(tile, _SMALL), _WIDE_WARPS
        stages = min(_WIDE_STAGES, num_stages(tile, head_dim, itemsize))
    else:
        stages = num_stages(tile, head_dim, itemsize)
    return {"TILE": tile, "num_warps": warps, "num_stages": stages}


def both(tile: int, head_dim: int, itemsize: int) -> int:
    """Bytes of a tile of keys and one of values."""
    return 2 * tile * head_dim * itemsize


def num_stages(tile: int, head_dim: int, itemsize: int) -> int:
    """Tiles of keys that `partial_kernel` has on their way: more of small ones, as far as there is memory."""
    return max(1, min(6 if tile <= _SMALL else 3, shared_memory() // both(tile, head_dim, itemsize)))


@triton.jit(do_not_specialize=["num_splits"])
def partial_kernel(
    q, keys, values, tables, table_rows, positions, partials, stats, sinks, out, scale, cap, window, width, num_splits,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    SPLIT: tl.constexpr, IS_SPLIT: tl.constexpr, TILE: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINKS: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    launch_dependents(IS_DEPENDENT)
    position = tl.load(positions + row)
    start = split * SPLIT
    first = first_key(position, window)
    if position < start or position < 0 or start + SPLIT <= first:
        return
    wait_for_previous(IS_DEPENDENT)
    members = tl.arange(0, GROUP)
    num_members: tl.constexpr = HEADS // KV_HEADS
    dims = tl.arange(0, DIM)
    heads = kv_head * num_members + members
    is_member = members < num_members
    queries = tl.load(
        q + row * HEADS * DIM + heads[:, None] * DIM + dims[None, :], mask=is_member[:, None], other=0.0
    )  # [GROUP, DIM]
    table = tables + tl.load(table_rows + row).to(tl.int64) * width
    top = tl.full([GROUP], float("-inf"), dtype=tl.float32)
    total = tl.zeros([GROUP], dtype=tl.float32)
    summed = tl.zeros([GROUP, DIM], dtype=tl.float32)
    end = tl.minimum(start + SPLIT, position + 1)
    for low in range(start + (tl.maximum(first, start) - start) // TILE * TILE, end, TILE):
        places = low + tl.arange(0, TILE)
        is_seen = (places <= position) & (places >= first)
        blocks = tl.load(table + places // SIZE, mask=is_seen, other=0).to(tl.int64)
        offsets = (blocks * KV_HEADS + kv_head) * SIZE * DIM + (places % SIZE) * DIM
        k = tl.load(keys + offsets[:, None] + dims[None, :], mask=is_seen[:, None], other=0.0)  # [TILE, DIM]
        v = tl.load(values + offsets[:, None] + dims[None, :], mask=is_seen[:, None], other=0.0)
        k, v = k.to(queries.dtype), v.to(queries.dtype)
        scores = tl.dot(queries, tl.trans(k), input_precision="ieee") * scale  # [GROUP, TILE]
        if HAS_CAP:
            scores = capped(scores, cap)
        scores = tl.where(is_seen[None, :], scores, float("-inf"))
        largest = tl.maximum(top, tl.max(scores, axis=1))
        shrink = tl.exp(top - largest)
        shares = tl.exp(scores - largest[:, None])
        total = total * shrink + tl.sum(shares, axis=1)
        summed = summed * shrink[:, None] + tl.dot(shares.to(v.dtype), v, input_precision="ieee")
        top = largest
    if IS_SPLIT and first // SPLIT < position // SPLIT:
        place = (row * HEADS + heads) * num_splits + split
        tl.store(stats + place * 2, top, mask=is_member)
        tl.store(stats + place * 2 + 1, total, mask=is_member)
        tl.store(partials + place[:, None] * DIM + dims[None, :], summed, mask=is_member[:, None])
    else:
        if HAS_SINKS:
            total += tl.exp(tl.load(sinks + heads, mask=is_member, other=0.0) - top)
        target = out + row * HEADS * DIM + heads[:, None] * DIM + dims[None, :]
        tl.store(target, (summed / total[:, None]).to(out.dtype.element_ty), mask=is_member[:, None])


@triton.jit(do_not_specialize=["num_splits"])
def single_kernel(
    q, keys, values, tables, table_rows, positions, partials, stats, sinks, out, scale, cap, window, width, num_splits,
    HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    SPLIT: tl.constexpr, IS_SPLIT: tl.constexpr, TILE: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINKS: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The same where every query head has keys of its own: there is nothing for the tensor cores to share."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    launch_dependents(IS_DEPENDENT)
    position = tl.load(positions + row)
    table = tables + tl.load(table_rows + row).to(tl.int64) * width
    start = split * SPLIT
    first = first_key(position, window)
    if position < start or position < 0 or start + SPLIT <= first:
        return
    wait_for_previous(IS_DEPENDENT)
    dims = tl.arange(0, DIM)
    query = tl.load(q + (row * HEADS + head) * DIM + dims).to(tl.float32) * scale
    top = float("-inf")
    total = 0.0
    summed = tl.zeros([DIM], dtype=tl.float32)
    end = tl.minimum(start + SPLIT, position + 1)
    for low in range(start + (tl.maximum(first, start) - start) // TILE * TILE, end, TILE):
        places = low + tl.arange(0, TILE)
        is_seen = (places <= position) & (places >= first)
        blocks = tl.load(table + places // SIZE, mask=is_seen, other=0).to(tl.int64)
        offsets = ((blocks * HEADS + head) * SIZE + places % SIZE)[:, None] * DIM + dims[None, :]  # [TILE, DIM]
        k = tl.load(keys + offsets, mask=is_seen[:, None], other=0.0)
        v = tl.load(values + offsets, mask=is_seen[:, None], other=0.0)
        scores = tl.sum(query[None, :] * k.to(tl.float32), axis=1)
        if HAS_CAP:
            scores = capped(scores, cap)
        scores = tl.where(is_seen, scores, float("-inf"))
        largest = tl.maximum(top, tl.max(scores, axis=0))
        shrink = tl.exp(top - largest)
        shares = tl.exp(scores - largest)
        total = total * shrink + tl.sum(shares, axis=0)
        summed = summed * shrink + tl.sum(shares[:, None] * v.to(tl.float32), axis=0)
        top = largest
    if IS_SPLIT and first // SPLIT < position // SPLIT:
        place = (row * HEADS + head) * num_splits + split
        tl.store(stats + place * 2, top)
        tl.store(stats + place * 2 + 1, total)
        tl.store(partials + place * DIM + dims, summed)
    else:
        if HAS_SINKS:
            total += tl.exp(tl.load(sinks + head) - top)
        tl.store(out + (row * HEADS + head) * DIM + dims, (summed / total).to(out.dtype.element_ty))


@triton.jit(do_not_specialize=["num_splits"])
def combine_kernel(
    partials, stats, positions, sinks, out, window, num_splits,
    HEADS: tl.constexpr, DIM: tl.constexpr, SPLIT: tl.constexpr, HAS_SINKS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dims = tl.arange(0, DIM)
    launch_dependents(IS_DEPENDENT)
    position = tl.load(positions + row)
    first = first_key(position, window) // SPLIT
    if position < 0 or first == position // SPLIT:  # of one stretch: its result is there
        return
    wait_for_previous(IS_DEPENDENT)
    top = float("-inf")
    total = 0.0
    summed = tl.zeros([DIM], dtype=tl.float32)
    last = position // SPLIT
    for low in range(first // JOINED * JOINED, last + 1, JOINED):
        splits = low + tl.arange(0, JOINED)
        is_there = (splits >= first) & (splits <= last)
        place = (row * HEADS + head) * num_splits + splits
        own = tl.load(stats + place * 2, mask=is_there, other=float("-inf"))
        largest = tl.maximum(top, tl.max(own, axis=0))
        shrink = tl.exp(top - largest)
        grow = tl.exp(own - largest)
        total = total * shrink + tl.sum(tl.load(stats + place * 2 + 1, mask=is_there, other=0.0) * grow, axis=0)
        parts = tl.load(partials + place[:, None] * DIM + dims[None, :], mask=is_there[:, None], other=0.0)
        summed = summed * shrink + tl.sum(parts * grow[:, None], axis=0)
        top = largest
    if HAS_SINKS:
        total += tl.exp(tl.load(sinks + head) - top)
    tl.store(out + (row * HEADS + head) * DIM + dims, (summed / total).to(out.dtype.element_ty))
