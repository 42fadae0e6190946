"""Tiles of a gated delta net where no request of a step has tokens of two, on Hopper, in Gluon: a request, a head and a
slice of its values a program.

A state is read once, by each thread the very numbers that the tensor cores want of it, two values at a time, and is
written only where the tile ends. The arithmetic is that of `walk_kernel`: the same bits.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from chairlift.runner.cuda.gluon import barrier

_SPAN = gl.constexpr(7)  # as `pages.py` has it


@gluon.jit
def stream_kernel(
    heads, factors, sums, inverses, scores, first, second, tables, spans, writes, out, table_width, writes_width,
    pages_of_write,
    KEY_HEADS: gl.constexpr, HEADS: gl.constexpr, NEIGHBOURS: gl.constexpr, KEY: gl.constexpr, VALUE: gl.constexpr,
    SLICE: gl.constexpr, PIECE: gl.constexpr, C: gl.constexpr, SIZE: gl.constexpr, TILE_PAGES: gl.constexpr,
    HALF_PAGES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """SIZE: float32 numbers of a page in each tensor; `first` and `second` are those tensors as float32. SLICE: 16
    values for each of WARPS."""
    CHANNELS: gl.constexpr = 2 * KEY_HEADS * KEY + HEADS * VALUE
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, 8])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    RIGHT: gl.constexpr = gl.DotOperandLayout(1, SUMS, 2)
    # Queries and keys of a piece as they are copied, eight numbers a thread, and as they lie in shared memory.
    COPIED: gl.constexpr = gl.BlockedLayout([1, 8], [256 // PIECE, PIECE // 8], [WARPS, 1], [1, 0])
    LYING: gl.constexpr = gl.SwizzledSharedLayout(vec=8, per_phase=1, max_phase=8, order=[1, 0])
    PIECES: gl.constexpr = KEY // PIECE
    head = gl.program_id(1)
    span = gl.program_id(2)
    gdc_launch_dependents()
    row = gl.load(spans + span * _SPAN)
    count = gl.load(spans + span * _SPAN + 1)
    if count == 0:
        return
    start = gl.load(spans + span * _SPAN + 2)
    end = start + count
    own = tables + gl.load(spans + span * _SPAN + 3) * table_width + TILE_PAGES
    unit = gl.load(spans + span * _SPAN + 4).to(gl.int64)
    first_write = gl.load(spans + span * _SPAN + 5)
    num_writes = first_write + gl.load(spans + span * _SPAN + 6)
    tile = start // C
    key_head = head // NEIGHBOURS % KEY_HEADS
    low = gl.program_id(0) * SLICE
    # As in `walk_kernel`, the state is read while other kernels run.
    before = own + tile % 2 * HALF_PAGES
    pieces = ()
    for index in gl.static_range(PIECES):
        piece = _piece(
            first, second, before, head * KEY + index * PIECE, low, tile > 0, PIECE, SLICE, VALUE, SIZE, WARPS
        )
        pieces = pieces + (piece,)  # type: ignore[assignment]  # noqa: RUF005
    gdc_wait()

    shared = gl.allocate_shared_memory(heads.dtype.element_ty, [2 * PIECES, C, PIECE], LYING)
    tokens = gl.arange(0, C, gl.SliceLayout(1, COPIED))
    is_live = (tile * C + tokens < end)[:, None]
    lines = heads + ((unit * C + tokens) * CHANNELS + key_head * KEY)[:, None]
    for index in gl.static_range(PIECES):
        dims = (index * PIECE + gl.arange(0, PIECE, gl.SliceLayout(0, COPIED)))[None, :]
        shared.index(2 * index).store(gl.load(lines + dims, mask=is_live, other=0.0))
        shared.index(2 * index + 1).store(gl.load(lines + dims + KEY_HEADS * KEY, mask=is_live, other=0.0))
    barrier()
    none = gl.zeros([SLICE, C], gl.float32, SUMS)
    seen_high, seen_low, found_high, found_low = none, none, none, none
    for index in gl.static_range(PIECES):
        query = shared.index(2 * index).permute((1, 0)).load(RIGHT)
        key = shared.index(2 * index + 1).permute((1, 0)).load(RIGHT)
        high, part = _parts(gl.convert_layout(pieces[index], LEFT))
        seen_high, seen_low = mma_v2(high, key, seen_high), mma_v2(part, key, seen_low)
        found_high, found_low = mma_v2(high, query, found_high), mma_v2(part, query, found_low)

    rows = gl.arange(0, C, gl.SliceLayout(0, SUMS))
    position = tile * C + rows
    values = (low + _of_rows(SLICE, SUMS))[:, None]
    source = heads + ((unit * C + rows) * CHANNELS + 2 * KEY_HEADS * KEY + head * VALUE)[None, :]
    value = gl.load(source + values, mask=(position < end)[None, :], other=0.0).to(gl.float32)
    lengths = factors + (unit * C + rows) * 2 * KEY_HEADS + key_head
    query_factor, key_factor = gl.load(lengths), gl.load(lengths + KEY_HEADS)
    total = gl.load(sums + (unit * HEADS + head) * C + rows)
    final = gl.load(sums + (unit * HEADS + head) * C + C - 1)
    earlier = gl.arange(0, C, gl.SliceLayout(1, RIGHT))
    later = gl.arange(0, C, gl.SliceLayout(0, RIGHT))
    square = (unit * HEADS + head) * C * C + later[None, :] * C + earlier[:, None]
    inverse = gl.load(inverses + square)
    weights = gl.load(scores + square)

    grown = gl.exp(total)
    update = value - (seen_high + seen_low) * (grown * key_factor)[None, :]
    update = _product(gl.convert_layout(update, LEFT), inverse, none)
    result = (found_high + found_low) * (grown * query_factor)[None, :]
    result = result + _product(gl.convert_layout(update, LEFT), weights, none)
    target = (row + position - start).to(gl.int64) * HEADS * VALUE + head * VALUE
    is_new = ((position >= start) & (position < end))[None, :]
    gl.store(out + target[None, :] + values, result.to(out.dtype.element_ty), mask=is_new)

    if (tile + 1) * C == end:
        rest = gl.convert_layout(update * (gl.exp(final - total) * key_factor)[None, :], LEFT)
        rest_high, rest_low = _parts(rest)
        after = own + (tile + 1) % 2 * HALF_PAGES
        sources = heads + ((unit * C + earlier) * CHANNELS + (KEY_HEADS + key_head) * KEY)[:, None]
        for index in gl.static_range(PIECES):
            gaining = gl.load(sources + (index * PIECE + gl.arange(0, PIECE, gl.SliceLayout(0, RIGHT)))[None, :])
            # Read again: few tokens end a tile, and registers are scarce.
            entry = head * KEY + index * PIECE
            spots = _lines(first, second, before, entry, SUMS, PIECE, VALUE, SIZE)[None, :] + values
            state = gl.load(spots, mask=gl.full([SLICE, PIECE], tile > 0, gl.int1, SUMS), other=0.0)
            gained = mma_v2(rest_low, gaining, gl.zeros([SLICE, PIECE], gl.float32, SUMS))
            state = state * gl.exp(final) + mma_v2(rest_high, gaining, gained)
            gl.store(_lines(first, second, after, entry, SUMS, PIECE, VALUE, SIZE)[None, :] + values, state)
            for write in range(first_write, num_writes):
                if gl.load(writes + write * writes_width) == end:
                    copy = writes + write * writes_width + pages_of_write
                    gl.store(_lines(first, second, copy, entry, SUMS, PIECE, VALUE, SIZE)[None, :] + values, state)


@gluon.jit
def _piece(
    first, second, pages, entry, low, is_there,
    PIECE: gl.constexpr, SLICE: gl.constexpr, VALUE: gl.constexpr, SIZE: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """A slice of a state from this key on, [rows, keys], as the tensor cores want it; zeros before the first tile. What
    a thread has of two rows are neighbours in memory: see `_of_rows`."""
    READ: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[1, 0], [0, 1], [0, 8], [0, 16]] + [[0, 32]] * (PIECE >= 64) + [[0, 64]] * (PIECE >= 128),
        lane_bases=[[0, 2], [0, 4], [2, 0], [4, 0], [8, 0]],
        warp_bases=[[16, 0]] * (WARPS >= 2) + [[32, 0]] * (WARPS >= 4) + [[64, 0]] * (WARPS >= 8),
        block_bases=[],
        shape=[SLICE, PIECE],
    )
    values = low + gl.arange(0, SLICE, gl.SliceLayout(1, READ))
    places = _lines(first, second, pages, entry, READ, PIECE, VALUE, SIZE)[None, :] + values[:, None]
    found = gl.load(places, mask=gl.full([SLICE, PIECE], is_there, gl.int1, READ), other=0.0)
    return gl.reshape(gl.permute(gl.reshape(found, [WARPS, 8, 2, PIECE]), (0, 2, 1, 3)), [SLICE, PIECE])


@gluon.jit
def _of_rows(SLICE: gl.constexpr, LAYOUT: gl.constexpr):
    """The value of each row of a product: a thread has rows that are 8 apart."""
    rows = gl.arange(0, SLICE, gl.SliceLayout(1, LAYOUT))
    return rows // 16 * 16 + rows % 8 * 2 + rows // 8 % 2


@gluon.jit
def _lines(
    first, second, pages, entry, LAYOUT: gl.constexpr, PIECE: gl.constexpr, VALUE: gl.constexpr, SIZE: gl.constexpr
):
    """Pointers to the values of some keys from this one on."""
    offset = (entry + gl.arange(0, PIECE, gl.SliceLayout(0, LAYOUT))) * VALUE
    inner = offset % (2 * SIZE)
    page = gl.load(pages + offset // (2 * SIZE)).to(gl.int64) * SIZE
    return gl.where(inner < SIZE, first + (page + inner), second + (page + inner - SIZE))


@gluon.jit
def _product(left, right, none):
    """As `parts.product` of two factors in float32."""
    high, low = _parts(left)
    right_high, right_low = _parts(right)
    return mma_v2(high, right_high, mma_v2(low, right_high, mma_v2(high, right_low, none)))


@gluon.jit
def _parts(x):
    high = x.to(gl.bfloat16)
    return high, (x - high.to(gl.float32)).to(gl.bfloat16)
