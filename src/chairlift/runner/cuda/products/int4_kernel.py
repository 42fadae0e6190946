"""Tiles of 4 bits to numbers in Triton: what many rows are multiplied by.

Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl


@triton.jit
def widen_int4_kernel(
    codes, scales, zeros, out, zero, first, num_rows, width, num_groups, group,
    IS_PAIRED: tl.constexpr, HAS_ZEROS: tl.constexpr,
):  # fmt: skip
    """out [num_rows, width] = (codes - zeros) * scales; codes as `products/int4.py` has them.

    A tile a program, from the tile of lines `first` on. IS_PAIRED: half of its lines are of the upper half of out.
    """
    place, above = tl.program_id(0), tl.program_id(1)
    tile = first + above
    index = (tile * tl.num_programs(0) + place).to(tl.int64)
    both = tl.load(codes + index * 2048 + tl.arange(0, 2048))
    halves = tl.reshape(tl.join(both & 15, both >> 4), [4, 8, 4, 2, 2, 2, 2, 2])
    numbers = tl.reshape(tl.permute(halves, (0, 7, 1, 6, 3, 4, 2, 5)), [64, 64]).to(tl.float32)
    lines, columns = tl.arange(0, 64), place * 64 + tl.arange(0, 64)
    places = (tile * num_groups + columns[None, :] // group) * 64 + lines[:, None]
    if HAS_ZEROS:
        numbers -= tl.load(zeros + places).to(tl.float32)
    else:
        numbers -= zero.to(tl.float32)
    numbers *= tl.load(scales + places).to(tl.float32)
    rows = above * 64 + lines
    if IS_PAIRED:
        rows = above * 32 + lines % 32 + lines // 32 * (num_rows // 2)
    target = out + rows[:, None].to(tl.int64) * width + columns[None, :]
    tl.store(target, numbers.to(out.dtype.element_ty), mask=(rows < num_rows)[:, None])
