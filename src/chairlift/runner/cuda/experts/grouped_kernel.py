"""The products of many rows with the matrices of the experts that they chose, in Triton.

Always: each output of a row is one sum over the inputs in order, whatever rows share its tile. Without torch: kernels
are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.experts.mxfp4 import GROUP, widened
from chairlift.runner.cuda.kernels import activated


@triton.jit
def grouped_kernel(
    x, weight, scales, bias, order, tiles, num_tiles, out, num_outputs, width,
    PAIRS: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, STRETCH: tl.constexpr, IS_EVEN: tl.constexpr,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, IS_MXFP4: tl.constexpr,
):  # fmt: skip
    """x [pairs / PAIRS, width], weight [experts, num_outputs, width] -> out [pairs, num_outputs]

    A tile of pairs of one expert and OUTPUTS of its outputs a program; the weight comes first, as `product_kernel` has
    it. ACTIVATION, unless it is empty: weight [experts, 2 * num_outputs, width] -> activation(first half of the
    product) * second half. IS_EVEN: all stretches are as long and no output is beyond. IS_MXFP4: weights are as
    `mxfp4.py` has them."""
    HALF: tl.constexpr = OUTPUTS // 2
    EACH: tl.constexpr = OUTPUTS if ACTIVATION == "" else HALF
    num_blocks = tl.cdiv(num_outputs, EACH)
    tile = tl.program_id(0) // num_blocks  # programs of one tile follow each other, and so do tiles of an expert
    block = tl.program_id(0) % num_blocks
    if tile >= tl.load(num_tiles):
        return
    expert = tl.load(tiles + tile * 3).to(tl.int64)
    first = tl.load(tiles + tile * 3 + 1)
    members = tl.arange(0, ROWS)
    is_row = members < tl.load(tiles + tile * 3 + 2)
    pairs = tl.load(order + first + members, mask=is_row, other=0).to(tl.int64)
    lines = tl.arange(0, OUTPUTS)
    if ACTIVATION == "":
        outputs = block * EACH + lines
        places = expert * num_outputs + outputs
    else:
        outputs = block * EACH + lines % HALF
        places = expert * 2 * num_outputs + lines // HALF * num_outputs + outputs
    is_output = outputs < num_outputs
    sums = tl.zeros([OUTPUTS, ROWS], dtype=tl.float32)
    if IS_MXFP4:
        # Half of the columns are in the low halves of bytes, the others in the high ones: each has its own product.
        BYTES: tl.constexpr = STRETCH // 2
        places_in = tl.arange(0, BYTES)
        columns = places_in // GROUP * (2 * GROUP) + places_in % GROUP
        from_x = x + (pairs // PAIRS)[:, None] * width + columns[None, :]
        from_weight = weight + places[:, None] * (width // 2) + places_in[None, :]
        from_scales = scales + places[:, None] * (width // (2 * GROUP)) + tl.arange(0, BYTES // GROUP)[None, :]
        for low in range(0, width, STRETCH):
            is_byte = low // 2 + places_in < width // 2
            packed = tl.load(from_weight + low // 2, mask=is_output[:, None] & is_byte[None, :], other=0)
            is_group = tl.arange(0, BYTES // GROUP) + low // (2 * GROUP) < width // (2 * GROUP)
            powers = tl.load(from_scales + low // (2 * GROUP), mask=is_output[:, None] & is_group[None, :], other=0)
            one, two = widened(packed, powers, OUTPUTS, BYTES)
            is_there = is_row[:, None] & is_byte[None, :]
            values = tl.load(from_x + low, mask=is_there, other=0.0)
            sums = tl.dot(one.to(values.dtype), tl.trans(values), sums, input_precision="ieee")
            values = tl.load(from_x + low + GROUP, mask=is_there, other=0.0)
            sums = tl.dot(two.to(values.dtype), tl.trans(values), sums, input_precision="ieee")
    else:
        columns = tl.arange(0, STRETCH)
        from_x = x + (pairs // PAIRS)[:, None] * width + columns[None, :]
        from_weight = weight + places[:, None] * width + columns[None, :]
        for low in range(0, width, STRETCH):
            if IS_EVEN:
                lines_of = tl.load(from_weight + low)
                values = tl.load(from_x + low, mask=is_row[:, None], other=0.0)
            else:
                is_column = (low + columns < width)[None, :]
                lines_of = tl.load(from_weight + low, mask=is_output[:, None] & is_column, other=0.0)
                values = tl.load(from_x + low, mask=is_row[:, None] & is_column, other=0.0)
            sums = tl.dot(lines_of, tl.trans(values), sums, input_precision="ieee")
    if HAS_BIAS:
        sums += tl.load(bias + places, mask=is_output, other=0.0).to(tl.float32)[:, None]
    kind = out.dtype.element_ty
    if ACTIVATION != "":
        # Rounded as the product would be if it were kept.
        both = tl.reshape(sums.to(kind).to(tl.float32), [2, HALF, ROWS])
        gate, up = tl.split(tl.permute(both, (1, 2, 0)))
        sums = activated(gate, up, ACTIVATION)
    outputs = block * EACH + tl.arange(0, EACH)
    target = out + pairs[None, :] * num_outputs + outputs[:, None]
    tl.store(target, sums.to(kind), mask=(outputs < num_outputs)[:, None] & is_row[None, :])
