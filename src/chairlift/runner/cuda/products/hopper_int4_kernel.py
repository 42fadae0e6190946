"""The matrix product of up to 64 rows by a weight of 4 bits on Hopper, in Gluon: as fast as the weight can be read.

The copy engine brings tiles of codes to shared memory, some ahead, and those of the first stretches before the kernels
ahead have finished. Tiles are stored thread by thread (`products/int4.py`): each takes the sixteen bytes that the
tensor cores want of it, and what it makes of them stays in its registers.

Always: a code becomes (code - zero) * scale, rounded once. A row's sums do not depend on the others in its launch; cut
into parts, they are joined in order.
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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from chairlift.runner.cuda.gluon import LINE, barrier
from chairlift.runner.cuda.products.hopper_kernel import OUTPUTS, join, store

BYTES = gl.constexpr(128)  # of a line of codes
TILE_LINES = gl.constexpr(16)  # of codes: a tile of 64 outputs and 64 columns


def _widen(number: str, magic: str, has_low: bool) -> str:
    """Four bytes (bits 0-3 and 16-19: columns c and c + 1, 4-7 and 20-23: eight outputs on; 8-15 and 24-31: the same
    of 32 columns on) to eight numbers. A code becomes 128 + code (of 16 bits: 1,024 + code) by its bits alone.

    In: 4 the bytes; 5, 6 scales, 7, 8 what they lack, 9, 10 zeros; 11 to 16 the same of 32 columns on.
    """
    lines = ["{", ".reg .b32 w, p, q;"]
    for out in range(4):
        scale, low, zero = (5 + out % 2 + 6 * (out // 2) + more for more in (0, 2, 4))
        word = "$4"
        if out:
            lines.append(f"shr.u32 w, $4, {4 * out};")
            word = "w"
        lines.append(f"lop3.b32 p, {word}, 0x000F000F, {magic}, 0xEA;")
        lines.append(f"sub.rn.{number} p, p, ${zero};")
        if has_low:
            lines.append(f"mul.rn.{number} q, p, ${low};")
            lines.append(f"fma.rn.{number} ${out}, p, ${scale}, q;")
        else:
            lines.append(f"mul.rn.{number} ${out}, p, ${scale};")
    return "\n".join([*lines, "}"])


# By whether scales have more digits than bf16: then each is the sum of two.
_PLAIN = gl.constexpr(_widen("bf16x2", "0x43004300", False))
_PRECISE = gl.constexpr(_widen("bf16x2", "0x43004300", True))
_HALF = gl.constexpr(_widen("f16x2", "0x64006400", False))
_OPERANDS = gl.constexpr("=&r,=&r,=&r,=&r," + ",".join(["r"] * 13))


@gluon.jit(do_not_specialize=["num_rows", "num_stretches", "zero"])
def int4_rows_kernel(
    x, codes, scales, zeros, bias, out, partials, counters, num_rows, num_outputs, num_across, num_groups,
    num_stretches, zero,
    ROWS: gl.constexpr, TILES: gl.constexpr, GROUP: gl.constexpr, HELD: gl.constexpr, SPLITS: gl.constexpr,
    STAGES: gl.constexpr, ACTIVATION: gl.constexpr, IS_PAIRED: gl.constexpr, IS_PRECISE: gl.constexpr,
    HAS_ZEROS: gl.constexpr, HAS_BIAS: gl.constexpr,
):  # fmt: skip
    """x [num_rows, width] and codes: descriptors; scales, zeros [num_outputs / 64, num_groups, 64] -> out

    num_across: tiles of a line. num_stretches: of a program, each of TILES tiles. HELD: room for its groups. zero: of
    all, without HAS_ZEROS. IS_PRECISE: scales have more digits than x. ACTIVATION, unless it is empty: the weight is
    paired, activation(first half of the product) * second half.
    """
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, ROWS, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    CODES: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8, rank=2)
    WIDTH: gl.constexpr = TILES * LINE
    # Tiles whose scales are the same; 0: those of 32 columns are.
    SHARING: gl.constexpr = TILES if GROUP % WIDTH == 0 else 2 if GROUP == 2 * LINE else 1 if GROUP % LINE == 0 else 0
    lines = gl.allocate_shared_memory(gl.uint8, [STAGES, TILES * TILE_LINES, BYTES], CODES)
    rows = gl.allocate_shared_memory(x.dtype, [STAGES, ROWS, WIDTH], LAYOUT)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for ahead in gl.static_range(STAGES):
        mbarrier.init(full.index(ahead), count=2)  # codes and rows
    fence_async_shared()
    barrier()
    tile = gl.program_id(0)
    first = gl.program_id(1) * num_stretches * TILES
    gdc_launch_dependents()
    place = (tile * num_across + first) * TILE_LINES
    for ahead in gl.static_range(STAGES):
        _copy_codes(codes, lines, full, ahead, place, ahead, TILES, ahead < num_stretches)
    low = first * LINE
    group = low // GROUP
    held = _hold(
        scales, zeros, tile * num_groups + group, num_groups - group, zero, x.dtype, HELD, IS_PRECISE, HAS_ZEROS
    )  # fmt: skip
    gdc_wait()
    for ahead in gl.static_range(STAGES):
        _copy_rows(x, rows, full, ahead, low + ahead * WIDTH, ROWS, ahead < num_stretches)
    sums = gl.zeros([OUTPUTS, ROWS], gl.float32, SUMS)
    for done in range(num_stretches):
        stage = done % STAGES
        column = low + done * WIDTH
        one = _scales_of(held, column // GROUP - group, LEFT)
        mbarrier.wait(full.index(stage), (done // STAGES) & 1)
        for part in gl.static_range(TILES):
            if SHARING == 0:
                one = _scales_of(held, (column + part * LINE) // GROUP - group, LEFT)
                two = _scales_of(held, (column + part * LINE + LINE // 2) // GROUP - group, LEFT)
            else:
                if part > 0 and part % SHARING == 0:
                    one = _scales_of(held, (column + part * LINE) // GROUP - group, LEFT)
                two = one
            codes_of = lines.index(stage).slice(part * TILE_LINES, TILE_LINES)
            left = _widened(codes_of, one, two, x.dtype, IS_PRECISE, LEFT)
            right = rows.index(stage).slice(part * LINE, LINE, dim=1).permute((1, 0))
            sums = warpgroup_mma(left, right, sums, is_async=True)
        sums = warpgroup_mma_wait(0, deps=(sums,))
        barrier()
        later = done + STAGES
        _copy_codes(codes, lines, full, stage, place, later, TILES, later < num_stretches)
        _copy_rows(x, rows, full, stage, low + later * WIDTH, ROWS, later < num_stretches)
    if SPLITS == 1:
        EACH: gl.constexpr = OUTPUTS if ACTIVATION == "" else OUTPUTS // 2
        store(sums, bias, out, tile, num_rows, num_outputs, ROWS, EACH, ACTIVATION, HAS_BIAS, IS_PAIRED)
    else:
        join(
            sums, bias, out, partials, counters, tile, num_rows, num_outputs, ROWS, SPLITS, ACTIVATION, HAS_BIAS,
            IS_PAIRED,
        )  # fmt: skip


@gluon.jit
def _copy_codes(codes, lines, full, stage, place, stretch, TILES: gl.constexpr, is_wanted):
    ready = full.index(stage)
    SIZE: gl.constexpr = TILES * TILE_LINES
    mbarrier.expect(ready, SIZE * BYTES, pred=is_wanted)
    tma.async_copy_global_to_shared(codes, [place + stretch * SIZE, 0], ready, lines.index(stage), pred=is_wanted)


@gluon.jit
def _copy_rows(x, rows, full, stage, column, ROWS: gl.constexpr, is_wanted):
    ready = full.index(stage)
    mbarrier.expect(ready, ROWS * rows.shape[2] * 2, pred=is_wanted)
    tma.async_copy_global_to_shared(x, [0, column], ready, rows.index(stage), pred=is_wanted)


@gluon.jit
def _hold(
    scales, zeros, place, num_groups, zero,
    KIND: gl.constexpr, HELD: gl.constexpr, IS_PRECISE: gl.constexpr, HAS_ZEROS: gl.constexpr,
):  # fmt: skip
    """In shared memory scales of all groups, what rounding them left, and zeros as codes have them: [HELD, OUTPUTS]"""
    THREADS: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    MAGIC: gl.constexpr = 0x4300 if gl.bfloat16 == KIND else 0x6400
    groups = gl.arange(0, HELD, gl.SliceLayout(1, THREADS))[:, None]
    places = (place + groups) * OUTPUTS + gl.arange(0, OUTPUTS, gl.SliceLayout(0, THREADS))[None, :]
    scale = gl.load(scales + places, mask=groups < num_groups, other=0.0)
    if HAS_ZEROS:
        shift = gl.load(zeros + places, mask=groups < num_groups, other=0).to(gl.int16)
    else:
        shift = gl.full([HELD, OUTPUTS], 0, gl.int16, THREADS) + zero.to(gl.int16)
    rounded = scale.to(KIND)
    kept, zeros_kept = _keep(rounded), _keep((shift + MAGIC).to(KIND, bitcast=True))
    rest_kept = kept
    if IS_PRECISE:
        rest_kept = _keep((scale.to(gl.float32) - rounded.to(gl.float32)).to(KIND))
    return kept, rest_kept, zeros_kept


@gluon.jit
def _keep(values):
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[1, 0])
    LINES: gl.constexpr = gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[0])
    memory = gl.allocate_shared_memory(values.dtype, values.shape, PLAIN, values)
    return memory._reinterpret(values.dtype, values.shape, LINES)


@gluon.jit
def _scales_of(held, group, LEFT: gl.constexpr):
    LINES: gl.constexpr = gl.SliceLayout(1, LEFT)
    one, two, three = held[0].index(group), held[1].index(group), held[2].index(group)
    return _spread(one.load(LINES)), _spread(two.load(LINES)), _spread(three.load(LINES))


@gluon.jit
def _spread(of_line):
    return gl.expand_dims(of_line, 1).broadcast_to([OUTPUTS, LINE // 2])


@gluon.jit
def _widened(held, one, two, kind: gl.constexpr, IS_PRECISE: gl.constexpr, LEFT: gl.constexpr):
    """A tile of codes to numbers [OUTPUTS, LINE], as the first operand."""
    THREADS: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [4, 1], [1, 0])
    # [warp, output, output, columns 2 q, 16 and 8 columns on, 8 outputs on, column + 1]
    packed = gl.reshape(held.load(THREADS), [4, 4, 2, 4, 2, 2, 2, 2])
    packed = gl.reshape(gl.permute(packed, (0, 6, 1, 2, 4, 5, 3, 7)), [OUTPUTS, LINE // 2])
    packed = gl.convert_layout(packed, LEFT, assert_trivial=True)
    values = [packed, one[0], one[1], one[2], two[0], two[1], two[2]]
    if IS_PRECISE:
        low, high = gl.inline_asm_elementwise(
            _PRECISE, _OPERANDS, values, dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=4
        )
    elif kind == gl.bfloat16:
        low, high = gl.inline_asm_elementwise(
            _PLAIN, _OPERANDS, values, dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=4
        )
    else:
        low, high = gl.inline_asm_elementwise(
            _HALF, _OPERANDS, values, dtype=(gl.float16, gl.float16), is_pure=True, pack=4
        )
    both = gl.reshape(gl.permute(gl.join(low, high), (0, 2, 1)), [OUTPUTS, LINE])
    return gl.convert_layout(both, LEFT, assert_trivial=True)
