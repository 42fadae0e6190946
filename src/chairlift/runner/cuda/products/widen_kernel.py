"""Quantised matrices to numbers in Triton: each is what the format's maker says, in float32, rounded once.

Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl


@triton.jit
def widen_kernel(
    codes, scales, zeros, table, factors, order, chosen, out, num_spans, per_row, num_groups,
    SPAN: tl.constexpr, SPANS: tl.constexpr, PER_GROUP: tl.constexpr, CODES: tl.constexpr, SCALES: tl.constexpr,
    HAS_ZEROS: tl.constexpr, HAS_FACTORS: tl.constexpr, HAS_ORDER: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """out = ((codes - zeros) * scales / factors[1]) * factors[0], [rows, columns], by spans of SPAN columns.

    per_row, PER_GROUP: spans of a row and of a group. CODES: "table" (half bytes, low ones first, of 16 numbers),
    "int8" or "e4m3". SCALES: "float", "e4m3" or "power" (of two, plus 127). order [columns]: the group of each column.
    EACH, unless it is 0: rows of an expert, of which those with a 0 in `chosen` are left out.
    """
    spans = tl.program_id(0).to(tl.int64) * SPANS + tl.arange(0, SPANS)
    is_there = spans < num_spans
    rows, within = spans // per_row, spans % per_row
    if EACH:
        is_there = is_there & (tl.load(chosen + rows // EACH, mask=is_there, other=0) != 0)
    mask, columns = is_there[:, None], tl.arange(0, SPAN)[None, :]
    places = spans[:, None] * SPAN + columns
    if CODES == "table":
        HALF: tl.constexpr = SPAN // 2
        both = tl.load(codes + spans[:, None] * HALF + tl.arange(0, HALF)[None, :], mask=mask, other=0)
        halves = tl.reshape(tl.join(both & 15, both >> 4), [SPANS, SPAN])
        numbers = tl.load(table + halves.to(tl.int32))
    elif CODES == "e4m3":
        numbers = _e4m3(tl.load(codes + places, mask=mask, other=0))
    else:
        numbers = tl.load(codes + places, mask=mask, other=0).to(tl.float32)
    if HAS_ORDER:
        group = tl.load(order + within[:, None] * SPAN + columns, mask=mask, other=0).to(tl.int64)
        group += rows[:, None] * num_groups
    else:
        group = (rows * num_groups + within // PER_GROUP)[:, None]
    if HAS_ZEROS:
        numbers -= tl.load(zeros + group, mask=mask, other=0).to(tl.float32)
    scale = tl.load(scales + group, mask=mask, other=0)
    if SCALES == "e4m3":
        numbers *= _e4m3(scale)
    elif SCALES == "power":
        numbers *= _power(scale)
    else:
        numbers *= scale.to(tl.float32)
    if HAS_FACTORS:
        divisor = tl.load(factors + 2 * rows + 1, mask=is_there, other=1.0)[:, None]
        numbers = tl.div_rn(numbers, tl.broadcast_to(divisor, [SPANS, SPAN]))
        numbers *= tl.load(factors + 2 * rows, mask=is_there, other=1.0)[:, None]
    tl.store(out + places, numbers.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _e4m3(byte):
    """A byte's bits where a float has its sign, exponent and fraction: the number times 2 ** -120."""
    wide = byte.to(tl.int32)
    bits = ((wide & 0x7F) << 20) | ((wide & 0x80) << 24)
    return bits.to(tl.float32, bitcast=True) * 1329227995784915872903807060280344576.0


@triton.jit
def _power(byte):
    wide = byte.to(tl.int32)
    return tl.where(wide == 0, 1 << 22, wide << 23).to(tl.float32, bitcast=True)  # 2 ** -127 is no normal number
