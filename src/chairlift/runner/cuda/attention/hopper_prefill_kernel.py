"""Attention of long prompt chunks on Hopper, in Gluon: as `prefill_kernel`, at twice the rate.

    one warp          copies pages of keys and values to shared memory by the copy engine, some tiles ahead
    two warpgroups    multiply: each has a head, both of the same keys; while the tensor cores compute for one, the
                      other weighs its scores

Scores of a tile are computed while the values of the tile before are added.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from chairlift.runner.cuda.gluon import LINE, barrier

QUERIES = gl.constexpr(64)  # of a program and of each of its two heads
LOG2_E = gl.constexpr(1.4426950408889634)
_COPY_REGISTERS = gl.constexpr(24)
_REGISTERS = gl.constexpr(240)  # of those that multiply


@gluon.jit
def hopper_prompt_kernel(
    q, keys, values, tables, tiles, out, scale, window, width, num_lines,
    HEADS: gl.constexpr, KV_HEADS: gl.constexpr, DIM: gl.constexpr, SIZE: gl.constexpr, TILE: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """A tile of queries and two heads a program.

    keys, values: descriptors of [num_lines, DIM], a page is SIZE lines. tiles [N, 4]: first row of the step, queries,
    position of the first, row of the block table; a tile of padding has no queries.
    """
    GROUP: gl.constexpr = HEADS // KV_HEADS
    PAIRS: gl.constexpr = (GROUP + 1) // 2
    tile = tiles + (gl.num_programs(1) - 1 - gl.program_id(1)) * 4  # later tiles see more keys: they begin first
    row = gl.load(tile)
    count = gl.load(tile + 1)
    position = gl.load(tile + 2)
    table = tables + gl.load(tile + 3).to(gl.int64) * width
    if count > 0:
        kv_head = gl.program_id(0) // PAIRS
        first = gl.program_id(0) % PAIRS * 2
        end = position + count
        low = 0
        seen = 0  # the first page that is read
        num_full = (position + 1) // TILE  # tiles of keys that every query sees whole
        if window > 0:
            low = gl.maximum(position + 1 - window, 0) // TILE * TILE
            seen = gl.maximum(position + 1 - window, 0) // SIZE
            num_full = 0
        num_tiles = (end - low + TILE - 1) // TILE
        LAYOUT: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
        kv = gl.allocate_shared_memory(keys.dtype, [2 * STAGES, TILE, DIM], LAYOUT)  # keys, values, keys, ...
        queries = gl.allocate_shared_memory(keys.dtype, [2, QUERIES, DIM], LAYOUT)
        full = gl.allocate_shared_memory(gl.int64, [2 * STAGES, 1], mbarrier.MBarrierLayout())
        empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
        for stage in gl.static_range(STAGES):
            mbarrier.init(full.index(2 * stage), count=1)
            mbarrier.init(full.index(2 * stage + 1), count=1)
            mbarrier.init(empty.index(stage), count=2)
        fence_async_shared()
        head = kv_head * GROUP + first
        has_next = first + 1 < GROUP
        memory = (kv, full, empty)
        span = (row, count, position, window, low, num_full, num_tiles)
        pages = (low // SIZE, seen, (end - 1) // SIZE, num_tiles)
        gl.warp_specialize(
            [
                (_attend, (q, out, scale, span, head, True, queries.index(0), memory, HEADS, DIM, SIZE, TILE, STAGES)),
                (
                    _attend,
                    (q, out, scale, span, head + 1, has_next, queries.index(1), memory, HEADS, DIM, SIZE, TILE, STAGES),
                ),
                (_copy, (keys, values, table, pages, kv_head, num_lines, memory, KV_HEADS, DIM, SIZE, TILE, STAGES)),
            ],
            [4, 1],
            [_REGISTERS, _COPY_REGISTERS],
        )


@gluon.jit
def _copy(
    keys, values, table, pages, kv_head, num_lines, memory,
    KV_HEADS: gl.constexpr, DIM: gl.constexpr, SIZE: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Pages that no query sees, before a window and behind the last, are zeros: the copy engine reads none beyond the
    cache."""
    NUM_PAGES: gl.constexpr = TILE // SIZE
    PARTS: gl.constexpr = DIM // LINE
    kv, full, empty = memory
    first, seen, last, num_tiles = pages
    memory_pages = _pages(kv, DIM, SIZE, TILE, STAGES)
    for tile in range(num_tiles):
        stage = tile % STAGES
        # All are read before the first is needed: one by one, each would be waited for.
        starts = _starts(table, first + tile * NUM_PAGES, seen, last, kv_head, num_lines, KV_HEADS, SIZE, NUM_PAGES)
        mbarrier.wait(empty.index(stage), ((tile // STAGES) & 1) ^ 1)
        for kind in gl.static_range(2):
            ready = full.index(2 * stage + kind)
            mbarrier.expect(ready, TILE * DIM * 2)
            for page in gl.static_range(NUM_PAGES):
                for part in gl.static_range(PARTS):
                    target = memory_pages.index(((2 * stage + kind) * PARTS + part) * NUM_PAGES + page)
                    source = [starts[page], part * LINE]
                    if kind == 0:
                        tma.async_copy_global_to_shared(keys, source, ready, target)
                    else:
                        tma.async_copy_global_to_shared(values, source, ready, target)


@gluon.jit
def _starts(
    table, page, seen, last, kv_head, num_lines, KV_HEADS: gl.constexpr, SIZE: gl.constexpr, NUM_PAGES: gl.constexpr
):  # fmt: skip
    """The first lines of so many pages."""
    if NUM_PAGES == 1:
        block = gl.load(table + gl.minimum(gl.maximum(page, seen), last))
        is_seen = (page >= seen) & (page <= last)
        starts = (gl.where(is_seen, (block * KV_HEADS + kv_head) * SIZE, num_lines),)
    else:
        HALF: gl.constexpr = NUM_PAGES // 2
        starts = _starts(table, page, seen, last, kv_head, num_lines, KV_HEADS, SIZE, HALF)
        starts += _starts(table, page + HALF, seen, last, kv_head, num_lines, KV_HEADS, SIZE, HALF)
    return starts


@gluon.jit
def _attend(
    q, out, scale, span, head, is_head, queries, memory,
    HEADS: gl.constexpr, DIM: gl.constexpr, SIZE: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """All queries of one head."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, TILE, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, DIM, 16])
    SHARES: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SUMS, k_width=2)
    LOADED: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    kv, full, _ = memory
    row, count, position, window, low, num_full, num_tiles = span
    kind: gl.constexpr = q.dtype.element_ty
    place, is_there = _places(row, count, head, is_head, HEADS, DIM, LOADED)
    queries.store(gl.load(q + place, mask=is_there, other=0.0))
    fence_async_shared()
    barrier()
    own = position + gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES))
    steep = scale * LOG2_E
    mbarrier.wait(full.index(0), 0)
    scores = gl.zeros([QUERIES, TILE], gl.float32, SCORES)
    scores = warpgroup_mma(queries, kv.index(0).permute((1, 0)), scores, use_acc=False, is_async=True)
    scores = _seen(warpgroup_mma_wait(0, deps=(scores,)), low, own, window, TILE)
    top = gl.max(scores, 1) * steep
    shares = gl.exp2(scores * steep - gl.where(top == float("-inf"), 0.0, top)[:, None])
    total = gl.sum(shares, 1)
    shares = gl.convert_layout(shares.to(kind), SHARES)
    summed = gl.zeros([QUERIES, DIM], gl.float32, SUMS)
    # Two loops: with a branch inside, the compiler would let scores wait for sums.
    num_full = gl.maximum(num_full, 1)
    for tile in range(1, num_full):
        top, total, shares, summed = _walk(
            tile, queries, memory, low, own, window, steep, top, total, shares, summed, TILE, STAGES, False
        )
    for tile in range(num_full, num_tiles):
        top, total, shares, summed = _walk(
            tile, queries, memory, low, own, window, steep, top, total, shares, summed, TILE, STAGES, True
        )
    stage = (num_tiles - 1) % STAGES
    mbarrier.wait(full.index(2 * stage + 1), ((num_tiles - 1) // STAGES) & 1)
    num_last = position + count - low - (num_tiles - 1) * TILE
    if num_last % SIZE != 0:
        _clear(kv, stage, num_last, DIM, SIZE, TILE, STAGES)
    summed = warpgroup_mma(shares, kv.index(2 * stage + 1), summed, is_async=True)
    summed = warpgroup_mma_wait(0, deps=(summed,))
    place, is_there = _places(row, count, head, is_head, HEADS, DIM, SUMS)
    total = gl.where(total > 0.0, total, 1.0)  # rows beyond the chunk may have seen nothing
    total = gl.convert_layout(total, gl.SliceLayout(1, SUMS))
    gl.store(out + place, (summed / total[:, None]).to(kind), mask=is_there)


@gluon.jit
def _walk(
    tile, queries, memory, low, own, window, steep, top, total, shares, summed,
    TILE: gl.constexpr, STAGES: gl.constexpr, IS_EDGE: gl.constexpr,
):  # fmt: skip
    """Scores of one more tile of keys, and the values of the one before."""
    kv, full, empty = memory
    stage = tile % STAGES
    before = (tile - 1) % STAGES
    mbarrier.wait(full.index(2 * stage), (tile // STAGES) & 1)
    SCORES: gl.constexpr = top.type.layout.parent
    scores = gl.zeros([QUERIES, TILE], gl.float32, SCORES)
    scores = warpgroup_mma(queries, kv.index(2 * stage).permute((1, 0)), scores, use_acc=False, is_async=True)
    mbarrier.wait(full.index(2 * before + 1), ((tile - 1) // STAGES) & 1)
    summed = warpgroup_mma(shares, kv.index(2 * before + 1), summed, is_async=True)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    if IS_EDGE:
        scores = _seen(scores, low + tile * TILE, own, window, TILE)
    largest = gl.maximum(top, gl.max(scores, 1) * steep)
    safe = largest
    if IS_EDGE:
        safe = gl.where(largest == float("-inf"), 0.0, largest)
    shrink = gl.exp2(top - safe)
    weighed = gl.exp2(scores * steep - safe[:, None])
    total = total * shrink + gl.sum(weighed, 1)
    weighed = gl.convert_layout(weighed.to(shares.dtype), shares.type.layout)
    summed, shares = warpgroup_mma_wait(0, deps=(summed, weighed))
    mbarrier.arrive(empty.index(before), count=1)
    summed = summed * gl.convert_layout(shrink, gl.SliceLayout(1, summed.type.layout))[:, None]
    return largest, total, shares, summed


@gluon.jit
def _places(row, count, head, is_head, HEADS: gl.constexpr, DIM: gl.constexpr, LAYOUT: gl.constexpr):
    """Where the head's queries and outputs are, and which."""
    members = gl.arange(0, QUERIES, gl.SliceLayout(1, LAYOUT))
    dims = gl.arange(0, DIM, gl.SliceLayout(0, LAYOUT))
    place = ((row + members).to(gl.int64) * HEADS + head)[:, None] * DIM + dims[None, :]
    return place, ((members < count) & is_head)[:, None]


@gluon.jit
def _seen(scores, low, own, window, TILE: gl.constexpr):
    """Minus infinity where a query does not see a key."""
    places = low + gl.arange(0, TILE, gl.SliceLayout(0, scores.type.layout))
    is_seen = (places[None, :] > own[:, None] - window) | (window == 0)
    return gl.where(is_seen & (places[None, :] <= own[:, None]), scores, float("-inf"))


@gluon.jit
def _clear(kv, stage, num_keys, DIM: gl.constexpr, SIZE: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr):
    """Zeros behind the last key in its page of values: what is there may be no number, and nothing times that is none
    either."""
    LOADED: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    PARTS: gl.constexpr = DIM // LINE
    pages = _pages(kv, DIM, SIZE, TILE, STAGES)
    page = (num_keys - 1) // SIZE
    is_there = (gl.arange(0, SIZE, gl.SliceLayout(1, LOADED)) < num_keys - page * SIZE)[:, None]
    for part in gl.static_range(PARTS):
        place = pages.index(((2 * stage + 1) * PARTS + part) * (TILE // SIZE) + page)
        values = place.load(LOADED)
        place.store(gl.where(is_there, values, gl.zeros_like(values)))
    fence_async_shared()
    barrier()


@gluon.jit
def _pages(kv, DIM: gl.constexpr, SIZE: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr):
    """The same memory as pages of lines: those of the first numbers of all keys of a tile, then those of the next."""
    NUM: gl.constexpr = 2 * STAGES * (DIM // LINE) * (TILE // SIZE)
    LAYOUT: gl.constexpr = kv.type.layout
    return kv._reinterpret(kv.dtype, [NUM, SIZE, LINE], LAYOUT)
