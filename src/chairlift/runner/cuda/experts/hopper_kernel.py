"""The products of the rows of experts in MXFP4 on Hopper, in Gluon: as fast as the weights can be read and widened.

The copy engine brings stretches of the weight to shared memory, some ahead; the rows' columns are copied beside them.
Each thread takes from there the bytes of the very numbers that the tensor cores want of it, so widening happens in its
registers, and nothing goes back.

Always: each output of a row is one sum over the inputs, whatever rows share its tile.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from chairlift.runner.cuda.experts.mxfp4 import GROUP, WIDEN
from chairlift.runner.cuda.gluon import activated, barrier

BYTES = gl.constexpr(128)  # of a line that are copied at once: 256 columns, eight groups
_GROUPS = gl.constexpr(8)


@gluon.jit
def mxfp4_kernel(
    x, weight, scales, bias, order, tiles, num_tiles, out, num_outputs, width,
    PAIRS: gl.constexpr, LINES: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, ACTIVATION: gl.constexpr,
    HAS_BIAS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """x [pairs / PAIRS, width], weight: a descriptor of [experts * num_outputs, width / 2] -> out [pairs, num_outputs]

    A tile of pairs of one expert and LINES of its weight a program. ACTIVATION, unless it is empty: the weight has
    2 * num_outputs lines of each expert -> activation(first half of the product) * second half; half of a program's
    lines are of either. Weights are as `experts/mxfp4.py` has them, tiles as `experts/routing_kernels.py`. x begins at
    a multiple of 16 bytes, which are copied at once."""
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8, rank=2)
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, 8])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 16)
    RIGHT: gl.constexpr = gl.DotOperandLayout(1, SUMS, 16)
    # How threads copy rows, eight columns each, and how these lie: the same columns of eight rows in different banks.
    COPIED: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [WARPS, 1], [1, 0])
    ROW_LAYOUT: gl.constexpr = gl.SwizzledSharedLayout(vec=8, per_phase=1, max_phase=8, order=[1, 0])
    REPEATS: gl.constexpr = LINES // (16 * WARPS)
    # `LEFT` with a group of bytes as a dimension of its own, which each thread has for itself.
    IN_GROUPS: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 1], [0, 0, 2], [0, 0, 4], [0, 0, 8], [8, 0, 0], [0, 4, 0]]
        + [[16 * WARPS, 0, 0]] * (REPEATS >= 2)
        + [[32 * WARPS, 0, 0]] * (REPEATS >= 4),
        lane_bases=[[0, 1, 0], [0, 2, 0], [1, 0, 0], [2, 0, 0], [4, 0, 0]],
        warp_bases=[[16, 0, 0]] * (WARPS >= 2) + [[32, 0, 0]] * (WARPS >= 4) + [[64, 0, 0]] * (WARPS >= 8),
        block_bases=[],
        shape=[LINES, _GROUPS, GROUP],
    )
    HALVES: gl.constexpr = 1 if ACTIVATION == "" else 2
    EACH: gl.constexpr = LINES // HALVES
    num_blocks = (num_outputs + EACH - 1) // EACH
    tile = gl.program_id(0) // num_blocks  # programs of one tile follow each other, and so do tiles of an expert
    block = gl.program_id(0) % num_blocks
    if tile >= gl.load(num_tiles):
        return
    lines = gl.allocate_shared_memory(gl.uint8, [STAGES, LINES, BYTES], LAYOUT)
    # Of each stage the columns of the low halves, then those of the high ones.
    rows = gl.allocate_shared_memory(x.dtype.element_ty, [STAGES * 2, ROWS, BYTES], ROW_LAYOUT)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for ahead in gl.static_range(STAGES):
        mbarrier.init(full.index(ahead), count=1)
    fence_async_shared()
    barrier()
    expert = gl.load(tiles + tile * 3)
    first = gl.load(tiles + tile * 3 + 1)
    count = gl.load(tiles + tile * 3 + 2)
    place = expert * HALVES * num_outputs + block * EACH
    num_stretches = (width + 2 * BYTES - 1) // (2 * BYTES)
    for ahead in gl.static_range(STAGES - 1):
        _copy(weight, lines, full, ahead, place, num_outputs, ahead * BYTES, LINES, HALVES, ahead < num_stretches)

    members = gl.arange(0, ROWS, gl.SliceLayout(1, COPIED))
    is_row = members < count
    pairs = gl.load(order + first + members, mask=is_row, other=0)
    in_line = gl.arange(0, BYTES, gl.SliceLayout(0, COPIED))
    columns = in_line // GROUP * (2 * GROUP) + in_line % GROUP  # of the low halves
    from_x = x + (pairs // PAIRS).to(gl.int64)[:, None] * width + columns[None, :]
    for ahead in gl.static_range(STAGES - 1):
        _copy_rows(from_x, rows, ahead, ahead * 2 * BYTES, columns, is_row, width)

    num_groups = width // (2 * GROUP)
    of_scales = gl.arange(0, LINES, gl.SliceLayout(1, gl.SliceLayout(2, IN_GROUPS)))
    groups = gl.arange(0, _GROUPS, gl.SliceLayout(0, gl.SliceLayout(2, IN_GROUPS)))
    is_line = block * EACH + of_scales % EACH < num_outputs
    places = (place + of_scales // EACH * num_outputs + of_scales % EACH).to(gl.int64)
    from_scales = scales + places[:, None] * num_groups + groups[None, :]
    powers = gl.load(from_scales, mask=(groups < num_groups)[None, :] & is_line[:, None], other=0)
    sums = gl.zeros([LINES, ROWS], gl.float32, SUMS)
    for done in range(num_stretches):
        stage = done % STAGES
        is_group = ((done + 1) * _GROUPS + groups < num_groups)[None, :] & is_line[:, None]
        next_powers = gl.load(from_scales + (done + 1) * _GROUPS, mask=is_group, other=0)
        # A bf16 of these bits of exponent is 2 ** (power - 127 + 126), here twice.
        scale = gl.expand_dims((powers.to(gl.int32) + 126) * 0x00800080, 2).broadcast_to([LINES, _GROUPS, GROUP])
        async_copy.wait_group(STAGES - 2)
        mbarrier.wait(full.index(stage), (done // STAGES) & 1)
        barrier()  # what every thread copied is there, and none reads the stretch before any more
        later = done + STAGES - 1
        spot = later % STAGES
        _copy(weight, lines, full, spot, place, num_outputs, later * BYTES, LINES, HALVES, later < num_stretches)
        _copy_rows(from_x, rows, spot, later * 2 * BYTES, columns, is_row, width)
        packed = gl.convert_layout(gl.reshape(lines.index(stage).load(LEFT), [LINES, _GROUPS, GROUP]), IN_GROUPS)
        one, two = gl.inline_asm_elementwise(
            WIDEN, "=r,=r,=r,=r,r,r,r,r,r", [packed, scale], dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=4
        )
        lows = rows.index(stage * 2).permute((1, 0)).load(RIGHT)
        sums = mma_v2(gl.convert_layout(gl.reshape(one, [LINES, BYTES]), LEFT), lows, sums)
        highs = rows.index(stage * 2 + 1).permute((1, 0)).load(RIGHT)
        sums = mma_v2(gl.convert_layout(gl.reshape(two, [LINES, BYTES]), LEFT), highs, sums)
        powers = next_powers
    async_copy.wait_group(0)  # zeros beyond the width: what follows may lie in the same memory

    kind: gl.constexpr = out.dtype.element_ty
    if HAS_BIAS:
        of_sums = gl.arange(0, LINES, gl.SliceLayout(1, SUMS))
        is_line_of = block * EACH + of_sums % EACH < num_outputs
        shift = gl.load(bias + place + of_sums // EACH * num_outputs + of_sums % EACH, mask=is_line_of, other=0.0)
        sums += shift.to(gl.float32)[:, None]
    if ACTIVATION != "":
        # Rounded before they are multiplied, as where the products are kept.
        both = gl.permute(gl.reshape(sums.to(kind).to(gl.float32), [2, EACH, ROWS]), (1, 2, 0))
        gate, up = gl.split(gl.convert_layout(both, gl.BlockedLayout([1, 1, 2], [8, 4, 1], [WARPS, 1, 1], [2, 1, 0])))
        sums = activated(gate, up, ACTIVATION)
    _write(sums, out, order + first, count, block, num_outputs)


@gluon.jit
def _copy(
    weight, lines, full, stage, place, num_outputs, column, LINES: gl.constexpr, HALVES: gl.constexpr, is_wanted
):  # fmt: skip
    EACH: gl.constexpr = LINES // HALVES
    ready = full.index(stage)
    target = lines.index(stage)
    mbarrier.expect(ready, LINES * BYTES, pred=is_wanted)
    if HALVES == 1:
        tma.async_copy_global_to_shared(weight, [place, column], ready, target, pred=is_wanted)
    else:
        tma.async_copy_global_to_shared(weight, [place, column], ready, target.slice(0, EACH), pred=is_wanted)
        ups = target.slice(EACH, EACH)
        tma.async_copy_global_to_shared(weight, [place + num_outputs, column], ready, ups, pred=is_wanted)


@gluon.jit
def _copy_rows(from_x, rows, stage, low, columns, is_row, width):
    """Columns beyond the width are 0."""
    is_there = is_row[:, None] & (low + columns < width)[None, :]
    async_copy.async_copy_global_to_shared(rows.index(stage * 2), from_x + low, mask=is_there)
    async_copy.async_copy_global_to_shared(rows.index(stage * 2 + 1), from_x + low + GROUP, mask=is_there)
    async_copy.commit_group()


@gluon.jit
def _write(values, out, order, count, block, num_outputs):
    rows = gl.arange(0, values.shape[1], gl.SliceLayout(0, values.type.layout))
    outputs = block * values.shape[0] + gl.arange(0, values.shape[0], gl.SliceLayout(1, values.type.layout))
    is_row = rows < count
    pairs = gl.load(order + rows, mask=is_row, other=0).to(gl.int64)
    is_there = (outputs < num_outputs)[:, None] & is_row[None, :]
    gl.store(out + pairs[None, :] * num_outputs + outputs[:, None], values.to(out.dtype.element_ty), mask=is_there)
