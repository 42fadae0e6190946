"""Quantised matrices in the layout of quant.h: from the blocks or the integers of a file, or rounded from floats.

Always: the values that a file's integers stand for are kept exactly. A product has the same bits on every processor, in
any batch.
"""

from collections.abc import Sequence
from ctypes import CDLL
from itertools import accumulate, groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.native.packed import Arena, pointer
from chairlift.runner.native.tape import Calls
from chairlift.runner.weights.integers import W4, W8
from chairlift.runner.weights.source import Stored

# As in quant.h: GGUF's numbers of kinds, and two beyond them.
KINDS = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
GROUPED = {W4: 100, W8: 101}
INT8, INT4 = KINDS["Q8_0"], KINDS["Q4_1"]  # floats are rounded to blocks of Q8_0 or Q4_1


class _Part:
    """Rows of one type."""

    def __init__(self, arena: Arena, kind: int, shape: tuple[int, int], num_bytes: int) -> None:
        self.kind, self.shape = kind, shape
        self._packed = arena.take(num_bytes // 2)
        self.pointer = self._packed.data_ptr()


class QuantisedWeight:
    def __init__(self, calls: Calls, parts: list[_Part], bias: Tensor | None, dtype: torch.dtype) -> None:
        self._parts = parts
        self._out, self._in = sum(part.shape[0] for part in parts), parts[0].shape[1]
        self._dtype = dtype
        self._bias = None if bias is None else bias.float().contiguous()
        self._empty, self._product, self._rows = calls.empty, calls.quant_product, calls.quant_rows

    @property
    def parts(self) -> list[tuple[int, ...]]:
        """As experts.py lists them."""
        listed: list[tuple[int, ...]] = []
        bias = pointer(self._bias) or 0
        for part in self._parts:
            listed.append((part.kind, part.pointer, part.shape[0], bias))
            bias += bias and 4 * part.shape[0]
        return listed

    def linear(self, x: Tensor) -> Tensor:
        return self._multiply(x, self._dtype)

    def logits(self, x: Tensor) -> Tensor:
        return self._multiply(x, torch.float32)

    def _multiply(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        num_rows = x.size(0)
        if not x.is_contiguous():
            x = x.contiguous()
        out = self._empty((num_rows, self._out), dtype)
        to, bias = out.data_ptr(), pointer(self._bias)
        for part in self._parts:
            rows = part.shape[0]
            self._product(
                part.kind, x.data_ptr(), part.pointer, bias, to, num_rows, rows, self._in, self._out,
                x.dtype is torch.bfloat16, dtype is torch.bfloat16,
            )  # fmt: skip
            to += rows * dtype.itemsize
            bias = None if bias is None else bias + rows * 4
        return out

    def rows(self, ids: Tensor) -> Tensor:
        (part,) = self._parts  # an embedding table is one tensor
        out = self._empty((len(ids), self._in), self._dtype)
        is_bf16 = self._dtype is torch.bfloat16
        self._rows(part.kind, part.pointer, ids.data_ptr(), out.data_ptr(), len(ids), self._in, is_bf16)
        return out


def from_stored(
    library: CDLL, calls: Calls, arena: Arena, parts: Sequence[Stored], bias: Tensor | None, dtype: torch.dtype
) -> QuantisedWeight:
    """Stacks the parts; neighbours that are stored alike become one."""
    packed = []
    for (kind, *_), group in groupby(parts, _layout):
        make = _of_groups if kind in GROUPED else _of_blocks
        packed.append(make(library, arena, list(group)))
    return QuantisedWeight(calls, packed, bias, dtype)


def _layout(part: Stored) -> tuple[str, int, bytes]:
    return part.kind, part.group, b"" if part.order is None else part.order.numpy().tobytes()


def _of_blocks(library: CDLL, arena: Arena, members: Sequence[Stored]) -> _Part:
    kind, shape = KINDS[members[0].kind], _shape(members)
    part = _Part(arena, kind, shape, library.chairlift_quant_bytes(kind, *shape))
    rows = np.concatenate([_addresses(m.tensors[0]) for m in members])
    bad = library.chairlift_quant_pack(kind, rows.ctypes.data, part.pointer, *shape)
    if bad >= 0:
        ends = accumulate(member.shape[0] for member in members)
        owner = next(member for member, end in zip(members, ends, strict=True) if bad < end)
        raise InvalidConfig(f"{owner.name} has a scale that is not a finite number")
    return part


def _of_groups(library: CDLL, arena: Arena, members: Sequence[Stored]) -> _Part:
    kind, shape, group = GROUPED[members[0].kind], _shape(members), members[0].group
    codes, scales, zeros = (torch.cat(parts).contiguous() for parts in zip(*(m.tensors for m in members), strict=True))
    scale_bytes = 2 if torch.equal(scales.half().float(), scales) else 4  # half floats where they hold them
    order, zero = members[0].order, int(zeros[0, 0])
    has_zeros = not torch.equal(zeros, torch.full_like(zeros, zero))
    num_bytes = library.chairlift_groups_bytes(kind, *shape, group, scale_bytes, has_zeros, order is not None)
    part = _Part(arena, kind, shape, num_bytes)
    library.chairlift_groups_pack(
        kind, codes.data_ptr(), scales.data_ptr(), zeros.data_ptr() if has_zeros else None, pointer(order),
        part.pointer, *shape, group, scale_bytes, zero,
    )  # fmt: skip
    return part


def _shape(members: Sequence[Stored]) -> tuple[int, int]:
    return sum(member.shape[0] for member in members), members[0].shape[1]


def _addresses(blocks: Tensor) -> NDArray[np.int64]:
    """Of the first block of each row of [out, groups, bytes]."""
    return blocks.data_ptr() + np.arange(len(blocks)) * blocks.stride(0)


def rounded(
    library: CDLL, calls: Calls, arena: Arena, kind: int, matrix: Tensor, bias: Tensor | None
) -> QuantisedWeight:
    """A matrix of floats, rounded to blocks."""
    rows, columns = matrix.shape
    part = _Part(arena, kind, (rows, columns), library.chairlift_quant_bytes(kind, rows, columns))
    wide = matrix.float().contiguous()
    bad = library.chairlift_quant_floats(kind, wide.data_ptr(), part.pointer, rows, columns)
    if bad >= 0:
        raise InvalidConfig("the weights hold numbers that are not finite, or too large for a half float's scale")
    return QuantisedWeight(calls, [part], bias, matrix.dtype)
