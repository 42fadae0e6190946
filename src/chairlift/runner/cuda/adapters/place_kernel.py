"""Puts the rows of an adapter that lie in a piece (`pieces.py`) into their slot: one launch for all of them.

Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

FIELDS = tl.constexpr(7)  # of a record
_NUMBERS = tl.constexpr(2048)  # of a turn


@triton.jit
def place_kernel(piece, slot):
    """piece: bytes, records first. slot: numbers. A record for each program of the first axis, shared by those of the
    second. Every number is multiplied in float32 and rounded once."""
    record = piece.to(tl.pointer_type(tl.int64)) + tl.program_id(0) * FIELDS
    start = tl.load(record)
    kind = tl.load(record + 1)
    width = tl.load(record + 3).to(tl.int32)
    count = tl.load(record + 2).to(tl.int32) * width
    target = slot + tl.load(record + 4)
    step = tl.load(record + 5)
    factor = tl.load(record + 6).to(tl.int32).to(tl.float32, bitcast=True)
    for low in range(tl.program_id(1) * _NUMBERS, count, tl.num_programs(1) * _NUMBERS):
        index = low + tl.arange(0, _NUMBERS)
        if kind == 0:
            numbers = _numbers(piece + start, index, count, tl.float32)
        elif kind == 1:
            numbers = _numbers(piece + start, index, count, tl.bfloat16)
        elif kind == 2:
            numbers = _numbers(piece + start, index, count, tl.float16)
        else:
            numbers = _numbers(piece + start, index, count, tl.float64)
        place = target + (index // width) * step + index % width
        tl.store(place, (numbers * factor).to(slot.dtype.element_ty), mask=index < count)


@triton.jit
def _numbers(start, index, count, KIND: tl.constexpr):
    return tl.load(start.to(tl.pointer_type(KIND)) + index, mask=index < count, other=0.0).to(tl.float32)
