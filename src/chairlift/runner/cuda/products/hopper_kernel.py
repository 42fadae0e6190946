"""The matrix product of up to 64 rows on Hopper, in Gluon: as fast as the weight can be read.

The copy engine brings stretches of the weight to shared memory, some ahead of the tensor cores. The first ones are on
their way before the kernels ahead have finished, as a weight waits for nobody: the memory is never idle. A program has
64 lines of the weight. Where there are too few for all processors it has a part of their columns, and whoever finishes
the last part of some lines joins them, in order; or half as many lines, where sums must not be cut.

Always: a row's bits do not depend on the others. Uncut sums are added up from the first column to the last, sixteen at
a time. `counters` is all 0 between launches.
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

from chairlift.runner.cuda.gluon import LINE, activated, barrier

OUTPUTS = gl.constexpr(64)  # lines of the weight that tensor cores take at once


@gluon.jit(do_not_specialize=["num_rows"])
def few_rows_kernel(
    x, weight, bias, out, partials, counters, num_rows, num_outputs, num_stretches,
    ROWS: gl.constexpr, LINES: gl.constexpr, STRETCH: gl.constexpr, SPLITS: gl.constexpr, STAGES: gl.constexpr,
    ACTIVATION: gl.constexpr, HAS_BIAS: gl.constexpr,
):  # fmt: skip
    """x, weight: descriptors of [num_rows, width] and [num_outputs, width] -> out [num_rows, num_outputs]

    ROWS: 8, 16, 32 or 64. LINES: of a program, up to OUTPUTS; the others are empty. num_stretches: of a program, each
    of STRETCH columns. ACTIVATION, unless it is empty: weight [2 * num_outputs, width] -> activation(first half of the
    product) * second half; half of a program's lines are of either.
    """
    PARTS: gl.constexpr = STRETCH // LINE
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, ROWS, 16])
    lines = gl.allocate_shared_memory(weight.dtype, [STAGES * PARTS, OUTPUTS, LINE], LAYOUT)
    rows = gl.allocate_shared_memory(weight.dtype, [STAGES * PARTS, ROWS, LINE], LAYOUT)
    lines_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    rows_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for ahead in gl.static_range(STAGES):
        mbarrier.init(lines_full.index(ahead), count=1)
        mbarrier.init(rows_full.index(ahead), count=1)
    fence_async_shared()
    barrier()
    EACH: gl.constexpr = LINES if ACTIVATION == "" else LINES // 2
    tile = gl.program_id(0)
    first = gl.program_id(1) * num_stretches * STRETCH
    gdc_launch_dependents()
    for ahead in gl.static_range(STAGES):
        is_wanted = ahead < num_stretches
        column = first + ahead * STRETCH
        _copy_lines(weight, lines, lines_full, ahead, tile, column, num_outputs, LINES, EACH, PARTS, is_wanted)
    gdc_wait()
    for ahead in gl.static_range(STAGES):
        copy_rows(x, rows, rows_full, ahead, first + ahead * STRETCH, ROWS, PARTS, ahead < num_stretches)
    sums = gl.zeros([OUTPUTS, ROWS], gl.float32, SUMS)
    for done in range(num_stretches):
        stage = done % STAGES
        phase = (done // STAGES) & 1
        mbarrier.wait(lines_full.index(stage), phase)
        mbarrier.wait(rows_full.index(stage), phase)
        for part in gl.static_range(PARTS):
            spot = stage * PARTS + part
            sums = warpgroup_mma(lines.index(spot), rows.index(spot).permute((1, 0)), sums, is_async=True)
        sums = warpgroup_mma_wait(0, deps=(sums,))
        barrier()
        column = first + (done + STAGES) * STRETCH
        is_wanted = done + STAGES < num_stretches
        _copy_lines(weight, lines, lines_full, stage, tile, column, num_outputs, LINES, EACH, PARTS, is_wanted)
        copy_rows(x, rows, rows_full, stage, column, ROWS, PARTS, is_wanted)
    if SPLITS == 1:
        store(sums, bias, out, tile, num_rows, num_outputs, ROWS, EACH, ACTIVATION, HAS_BIAS)
    else:
        gl.static_assert(LINES == OUTPUTS)
        join(sums, bias, out, partials, counters, tile, num_rows, num_outputs, ROWS, SPLITS, "", HAS_BIAS)


@gluon.jit
def _copy_lines(
    weight, lines, full, stage, tile, column, num_outputs,
    LINES: gl.constexpr, EACH: gl.constexpr, PARTS: gl.constexpr, is_wanted,
):  # fmt: skip
    ready = full.index(stage)
    mbarrier.expect(ready, LINES * PARTS * LINE * 2, pred=is_wanted)
    for part in gl.static_range(PARTS):
        target = lines.index(stage * PARTS + part)
        source = column + part * LINE
        firsts = target if EACH == OUTPUTS else target.slice(0, EACH)
        tma.async_copy_global_to_shared(weight, [tile * EACH, source], ready, firsts, pred=is_wanted)
        if EACH != LINES:
            ups = target.slice(EACH, EACH)
            tma.async_copy_global_to_shared(weight, [num_outputs + tile * EACH, source], ready, ups, pred=is_wanted)


@gluon.jit
def copy_rows(x, rows, full, stage, column, ROWS: gl.constexpr, PARTS: gl.constexpr, is_wanted):
    ready = full.index(stage)
    mbarrier.expect(ready, ROWS * PARTS * LINE * 2, pred=is_wanted)
    for part in gl.static_range(PARTS):
        target = rows.index(stage * PARTS + part)
        tma.async_copy_global_to_shared(x, [0, column + part * LINE], ready, target, pred=is_wanted)


@gluon.jit
def join(
    sums, bias, out, partials, counters, tile, num_rows, num_outputs,
    ROWS: gl.constexpr, SPLITS: gl.constexpr, ACTIVATION: gl.constexpr, HAS_BIAS: gl.constexpr,
    IS_PAIRED: gl.constexpr = False,
):  # fmt: skip
    """The last program of a tile joins its parts, in order; as `store` then."""
    lines = gl.arange(0, OUTPUTS, gl.SliceLayout(1, sums.type.layout))
    rows = gl.arange(0, ROWS, gl.SliceLayout(0, sums.type.layout))
    places = partials + (tile * OUTPUTS + lines)[:, None] * ROWS + rows[None, :]
    size = gl.num_programs(0) * OUTPUTS * ROWS
    gl.store(places + gl.program_id(1) * size, sums)
    barrier()  # all of the program's stores come before it is counted
    if gl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLITS - 1:
        gl.store(counters + tile, 0)
        joined = gl.load(places, cache_modifier=".cg")
        for split in gl.static_range(1, SPLITS):
            joined += gl.load(places + split * size, cache_modifier=".cg")
        EACH: gl.constexpr = OUTPUTS if ACTIVATION == "" else OUTPUTS // 2
        store(joined, bias, out, tile, num_rows, num_outputs, ROWS, EACH, ACTIVATION, HAS_BIAS, IS_PAIRED)


@gluon.jit
def store(
    sums, bias, out, tile, num_rows, num_outputs,
    ROWS: gl.constexpr, EACH: gl.constexpr, ACTIVATION: gl.constexpr, HAS_BIAS: gl.constexpr,
    IS_PAIRED: gl.constexpr = False,
):  # fmt: skip
    """IS_PAIRED: half of a tile's lines are of the first half of outputs, though there is no activation."""
    kind: gl.constexpr = out.dtype.element_ty
    if ACTIVATION != "":
        BOTH: gl.constexpr = gl.BlockedLayout([1, 1, 2], [8, 4, 1], [4, 1, 1], [2, 1, 0])
        # Rounded before they are multiplied, as where the products are kept.
        both = gl.reshape(sums.to(kind).to(gl.float32), [2, OUTPUTS // 2, ROWS])
        gate, up = gl.split(gl.convert_layout(gl.permute(both, (1, 2, 0)), BOTH))
        _write(activated(gate, up, ACTIVATION), out, tile, num_rows, num_outputs, EACH, False)
    else:
        if HAS_BIAS:
            lines = gl.arange(0, OUTPUTS, gl.SliceLayout(1, sums.type.layout))
            outputs = _outputs(lines, tile, num_outputs, EACH, IS_PAIRED)
            sums += gl.load(bias + outputs, mask=outputs < num_outputs, other=0.0).to(gl.float32)[:, None]
        _write(sums, out, tile, num_rows, num_outputs, EACH, IS_PAIRED)


@gluon.jit
def _outputs(lines, tile, num_outputs, EACH: gl.constexpr, IS_PAIRED: gl.constexpr):
    if IS_PAIRED:
        HALF: gl.constexpr = EACH // 2
        return tile * HALF + lines % HALF + lines // HALF * (num_outputs // 2)
    return tile * EACH + lines


@gluon.jit
def _write(values, out, tile, num_rows, num_outputs, EACH: gl.constexpr, IS_PAIRED: gl.constexpr):
    lines = gl.arange(0, values.shape[0], gl.SliceLayout(1, values.type.layout))
    outputs = _outputs(lines, tile, num_outputs, EACH, IS_PAIRED)
    rows = gl.arange(0, values.shape[1], gl.SliceLayout(0, values.type.layout))
    place = rows[None, :].to(gl.int64) * num_outputs + outputs[:, None]
    is_there = ((lines < EACH) & (outputs < num_outputs))[:, None] & (rows < num_rows)[None, :]
    gl.store(out + place, values.to(out.dtype.element_ty), mask=is_there)
