"""The product of a few rows by warps that read weights straight into the registers of the tensor cores, in Triton.

Staging weights in shared memory takes a moment to begin and to end, which is a tenth of the time of a small product.
Here a warp has eight outputs and asks for weights many steps ahead; a step is sixteen inputs, as everywhere else. The
loop is written in PTX, because Triton lets nobody say which lane loads what into a dot.

    lane 4 r + j of a warp, step s:  x[r, 16 s + 4 j : + 4]  and  weight[first + r, 16 s + 4 j : + 4]

That is not the order in which the instruction numbers the sixteen, but both sides agree, and it adds all of them at
once.
"""

from functools import cache

import triton
import triton.language as tl

GROUP = 8  # outputs of a warp; rows at most
_LOAD = "ld.global.nc.L1::no_allocate.L2::128B.v2.b32"
_MAX_AHEAD = 48  # steps: more do not fit the registers


@cache
def steps_ahead(width: int, num_parts: int = 1) -> int:
    """Of the steps that a row of this width has, how many are asked for before they are needed; 0: it cannot be cut."""
    num_steps, rest = divmod(width, 16)
    return 0 if rest else max(n for n in range(1, _MAX_AHEAD // num_parts + 1) if num_steps % n == 0)


@cache
def ptx(ahead: int, num_parts: int, kind: str) -> str:
    """The loop. Results: four sums for each part; arguments: where the weights of each part and x begin, the number of
    steps, whether the lane has a row. kind: bf16 or f16."""
    num_sums = 4 * num_parts
    sums = [", ".join(f"${4 * part + i}" for i in range(4)) for part in range(num_parts)]
    x, num_steps, has_row = (f"${num_sums + num_parts + i}" for i in range(3))

    mma = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"

    def pair(name: str, step: int) -> str:
        return f"{name}{2 * step}, {name}{2 * step + 1}"

    def load(step: int, first: int) -> list[str]:
        at = 32 * (first + step)
        weights = [f"{_LOAD} {{{pair(f'w{part}_', step)}}}, [p{part} + {at}];" for part in range(num_parts)]
        return [*weights, f"@has ld.global.nc.v2.b32 {{{pair('x', step)}}}, [px + {at}];"]

    def multiply(step: int) -> list[str]:
        rows = f"{{x{2 * step}, zero, x{2 * step + 1}, zero}}"
        return [
            f"{mma} {{{sums[part]}}}, {rows}, {{{pair(f'w{part}_', step)}}}, {{{sums[part]}}};"
            for part in range(num_parts)
        ]

    steps, parts = range(ahead), range(num_parts)
    lines = [
        *(f".reg .b32 w{part}_<{2 * ahead}>;" for part in parts),
        *(f".reg .b64 p{part};" for part in parts),
        f".reg .b32 x<{2 * ahead}>, zero, left; .reg .b64 px; .reg .pred more, has;",
        *(f"mov.b64 p{part}, ${num_sums + part};" for part in parts),
        f"mov.b64 px, {x}; mov.b32 left, {num_steps}; setp.ne.s32 has, {has_row}, 0; mov.b32 zero, 0;",
        *(f"mov.f32 ${i}, 0f00000000;" for i in range(num_sums)),
        *(f"mov.b32 x{i}, 0;" for i in range(2 * ahead)),
        *(line for step in steps for line in load(step, 0)),
        f"NEXT: sub.s32 left, left, {ahead}; setp.gt.s32 more, left, 0; @!more bra LAST;",
        *(line for step in steps for line in (*multiply(step), *load(step, ahead))),
        *(f"add.s64 p{part}, p{part}, {32 * ahead};" for part in parts),
        f"add.s64 px, px, {32 * ahead}; bra NEXT;",
        "LAST:",
        *(line for step in steps for line in multiply(step)),
    ]
    return "{" + "\n".join(lines) + "}"


@triton.jit(do_not_specialize=["num_rows"])
def direct_kernel(x, weight, out, num_rows, num_outputs, width, LOOP: tl.constexpr):
    """x [num_rows, width], weight [num_outputs, width] -> out [num_rows, num_outputs]; up to eight rows."""
    thread = tl.arange(0, 32)
    line, quarter = thread // 4, thread % 4
    first = tl.program_id(0) * 8
    from_weight = weight + (first + line).to(tl.int64) * width + quarter * 4
    from_x = x + line * width + quarter * 4
    is_row = line < num_rows
    sum0, sum1, _, _ = tl.inline_asm_elementwise(
        LOOP, "=&f,=&f,=&f,=&f,l,l,r,r",
        [
            from_weight.to(tl.int64, bitcast=True), from_x.to(tl.int64, bitcast=True),
            thread * 0 + width // 16, is_row.to(tl.int32),
        ],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32), is_pure=True, pack=1,
    )  # fmt: skip
    target = out + line * num_outputs + first + quarter * 2
    tl.store(target, sum0.to(out.dtype.element_ty), mask=is_row)
    tl.store(target + 1, sum1.to(out.dtype.element_ty), mask=is_row)


@triton.jit(do_not_specialize=["num_rows"])
def direct_gated_kernel(x, weight, out, num_rows, num_outputs, width, LOOP: tl.constexpr):
    """weight [2 * num_outputs, width]: silu(first half of the product) * second half, as `silu_mul_kernel` has it."""
    thread = tl.arange(0, 32)
    line, quarter = thread // 4, thread % 4
    first = tl.program_id(0) * 8
    from_weight = weight + (first + line).to(tl.int64) * width + quarter * 4
    from_second = from_weight + num_outputs.to(tl.int64) * width
    from_x = x + line * width + quarter * 4
    is_row = line < num_rows
    gate0, gate1, _, _, up0, up1, _, _ = tl.inline_asm_elementwise(
        LOOP, "=&f,=&f,=&f,=&f,=&f,=&f,=&f,=&f,l,l,l,r,r",
        [
            from_weight.to(tl.int64, bitcast=True), from_second.to(tl.int64, bitcast=True),
            from_x.to(tl.int64, bitcast=True), thread * 0 + width // 16, is_row.to(tl.int32),
        ],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True, pack=1,
    )  # fmt: skip
    target = out + line * num_outputs + first + quarter * 2
    tl.store(target, _gated(gate0, up0, out), mask=is_row)
    tl.store(target + 1, _gated(gate1, up1, out), mask=is_row)


@triton.jit
def _gated(gate, up, out):
    # Rounded as the product would be if it were kept.
    gate = gate.to(out.dtype.element_ty).to(tl.float32)
    up = up.to(out.dtype.element_ty).to(tl.float32)
    return (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty)
