"""Matrices that stay on the GPU as their file has them: a product widens one into memory that all layers share, and
multiplies by that.

    packed, of every layer  ->  scratch, in the model's type  ->  the product of such a matrix

Always: a widened number is what the format's maker says, computed in float32 and rounded once to the model's type; so
a product has the bits of the product of the dequantised matrix. The scratch lies where it lay when steps are captured.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
import triton
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.cuda.products.widen_kernel import widen_kernel
from chairlift.runner.ops import MakeWeight, Weight
from chairlift.runner.weights.integers import W4, W8
from chairlift.runner.weights.mxfp4 import E2M1, MXFP4
from chairlift.runner.weights.quantised import FP8, NF4, NVFP4
from chairlift.runner.weights.source import Stored

PACKED_KINDS = (W4, W8, FP8, NVFP4, MXFP4, NF4)
_SPAN, _WIDENED = 128, 4096  # columns at a time, numbers of a program
MOST_WIDENED = 1 << 27  # numbers that are widened at once: a head is widened in stretches


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows that are stored alike, as `widen_kernel` reads them."""

    codes: Tensor  # [rows, columns] bytes or [rows, columns / 2] half bytes, low ones first
    scales: Tensor  # [rows, groups]
    zeros: Tensor | None  # int8 [rows, groups]
    factors: Tensor | None  # float32 [rows, 2]
    table: Tensor | None  # float32 [16], of half bytes
    order: Tensor | None  # int32 [columns]: the group of each column; None: they are in order
    columns: int
    powers: bool = False  # scales are powers of two

    @property
    def num_rows(self) -> int:
        return len(self.codes)

    @property
    def by_row(self) -> list[Tensor]:
        return [each for each in (self.codes, self.scales, self.zeros, self.factors) if each is not None]

    def rows(self, take: Callable[[Tensor], Tensor]) -> "Packed":
        """Some of them: what `take` does with each tensor of all."""
        zeros, factors = self.zeros, self.factors
        return replace(
            self,
            codes=take(self.codes),
            scales=take(self.scales),
            zeros=None if zeros is None else take(zeros),
            factors=None if factors is None else take(factors),
        )

    def widen(self, out: Tensor, chosen: Tensor | None = None, each: int = 0) -> None:
        """Into out [rows, columns]. chosen int32 [experts], each of so many rows: leaves out those that are 0."""
        if not self.num_rows:
            return
        num_groups = self.scales.shape[1]
        group = self.columns if self.order is not None else self.columns // num_groups
        span = min(_SPAN, group & -group)
        per_row, spans = self.columns // span, _WIDENED // span
        num_spans = self.num_rows * per_row
        codes = "table" if self.table is not None else "int8" if self.codes.dtype is torch.int8 else "e4m3"
        scales = "power" if self.powers else "e4m3" if self.scales.dtype is torch.uint8 else "float"
        widen_kernel[(triton.cdiv(num_spans, spans),)](
            self.codes, self.scales, self.zeros, self.table, self.factors, self.order, chosen, out, num_spans, per_row,
            num_groups,
            SPAN=span, SPANS=spans, PER_GROUP=group // span, CODES=codes, SCALES=scales,
            HAS_ZEROS=self.zeros is not None, HAS_FACTORS=self.factors is not None, HAS_ORDER=self.order is not None,
            EACH=each, num_warps=8,
        )  # fmt: skip


@dataclass(slots=True)
class Scratch:
    """Memory for the widened matrices of one product."""

    memory: Tensor | None = None  # bytes
    last: int = 0  # numbers of the matrix before

    def reserve(self, count: int, dtype: torch.dtype, device: torch.device) -> None:
        """For so many numbers, before any step."""
        size = count * dtype.itemsize
        if self.memory is None or len(self.memory) < size:
            self.memory = None  # not both at once
            self.memory = torch.empty(size, dtype=torch.uint8, device=device)

    def reserve_beside_last(self, count: int, dtype: torch.dtype, device: torch.device) -> None:
        """For matrices that are widened in pairs, as they are made."""
        self.reserve(self.last + count, dtype, device)
        self.last = count

    def matrices(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[Tensor]:
        assert self.memory is not None
        sizes = [math.prod(shape) for shape in shapes]
        parts = self.memory.view(dtype)[: sum(sizes)].split(sizes)
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def settle(self) -> None:
        """A kernel that is launched early reads its weights ahead of those before it. This one ends in between."""
        if self.memory is not None and self.memory.is_cuda:
            torch.empty(1, device=self.memory.device).fill_(0.0)


class PackedWeight:
    def __init__(
        self, parts: Sequence[Packed], bias: Tensor | None, dtype: torch.dtype, scratch: Scratch, make: MakeWeight
    ) -> None:
        """make: a weight of a matrix that is in the scratch, for one product."""
        self._parts, self._bias, self._dtype, self._scratch, self._make = parts, bias, dtype, scratch, make
        self._columns = parts[0].columns
        self._most = max(1, MOST_WIDENED // self._columns)  # rows at once
        most = min(self._most, max(part.num_rows for part in parts) if self._is_cut else self._num_rows)
        scratch.reserve(most * self._columns, dtype, parts[0].codes.device)

    @property
    def _num_rows(self) -> int:
        return sum(part.num_rows for part in self._parts)

    @property
    def _is_cut(self) -> bool:
        return self._num_rows > self._most

    def linear(self, x: Tensor) -> Tensor:
        return self._product(lambda weight: weight.linear(x))

    def logits(self, x: Tensor) -> Tensor:
        return self._product(lambda weight: weight.logits(x))

    def rows(self, ids: Tensor) -> Tensor:
        (part,) = self._parts  # an embedding table is one tensor
        out = torch.empty(len(ids), self._columns, dtype=self._dtype, device=ids.device)
        part.rows(lambda tensor: tensor.index_select(0, ids)).widen(out)
        return out

    def _product(self, multiply: Callable[[Weight], Tensor]) -> Tensor:
        if not self._is_cut:
            return multiply(self._make(self._widened(self._parts), self._bias))
        pieces, first = [], 0
        for part in self._parts:
            for low in range(0, part.num_rows, self._most):
                high = min(low + self._most, part.num_rows)
                own = part.rows(lambda tensor, low=low, high=high: tensor[low:high])  # type: ignore[misc]
                bias = None if self._bias is None else self._bias[first : first + high - low]
                pieces.append(multiply(self._make(self._widened([own]), bias)))
                first += high - low
        return torch.cat(pieces, dim=1)

    def _widened(self, parts: Sequence[Packed]) -> Tensor:
        heights = [part.num_rows for part in parts]
        (matrix,) = self._scratch.matrices([(sum(heights), self._columns)], self._dtype)
        for part, out in zip(parts, matrix.split(heights), strict=True):
            part.widen(out)
        self._scratch.settle()
        return matrix


def pack_all(parts: Sequence[Stored]) -> list[Packed]:
    """Neighbours that are stored alike become one."""
    packed = [pack(part) for part in parts]
    return [_joined(list(group)) for _, group in groupby(packed, _form)]


def pack(stored: Stored) -> Packed:
    """Of tensors on the device, [out, groups, ...]."""
    codes, scales, *more = (each.contiguous() for each in _apart(stored))
    codes, columns = codes.flatten(1), stored.shape[-1]
    if stored.kind in (W4, W8):
        return _of_integers(stored, codes, scales, *more)
    if stored.kind == FP8:
        codes = codes.view(torch.uint8)
        if bool(((codes & 0x7F) == 0x7F).any()):
            raise InvalidConfig(f"{stored.name}: weight holds values that are not finite numbers (damaged?)")
        return Packed(codes, compact(scales), None, None, None, None, columns)
    if stored.kind == NF4:
        return Packed(codes >> 4 | codes << 4, compact(scales), None, None, more[0][0].clone(), None, columns)
    table = torch.tensor(E2M1, device=codes.device)
    factors = more[0] if more else None
    return Packed(codes, scales.view(torch.uint8), None, factors, table, None, columns, stored.kind == MXFP4)


def _apart(stored: Stored) -> tuple[Tensor, ...]:
    """Codes, scales and more. GGUF has both in one, and a group's second half beside its first."""
    if len(stored.tensors) > 1:
        return stored.tensors
    scales, both = stored.tensors[0][..., 0], stored.tensors[0][..., 1:]
    columns = torch.cat((both & 15, both >> 4), dim=-1)
    return columns[..., ::2] | columns[..., 1::2] << 4, scales


def _of_integers(stored: Stored, codes: Tensor, scales: Tensor, zeros: Tensor) -> Packed:
    order, table, zero = None, None, int(zeros[0, 0])
    is_same = bool((zeros == zero).all())
    if stored.order is not None:
        order = torch.empty_like(stored.order)
        order[stored.order.long()] = torch.arange(len(order), device=codes.device).int() // stored.group
    if stored.kind == W4:
        codes = codes[:, ::2] | codes[:, 1::2] << 4
        table = torch.arange(16.0, device=codes.device) - (zero if is_same else 0)
    has_zeros = not is_same or (zero != 0 and table is None)
    return Packed(codes, compact(scales), zeros if has_zeros else None, None, table, order, stored.shape[-1])


def compact(scales: Tensor) -> Tensor:
    """In 16 bits, where these hold them."""
    for dtype in (torch.float16, torch.bfloat16):
        if torch.equal((narrow := scales.to(dtype)).float(), scales):
            return narrow
    return scales


def _form(part: Packed) -> tuple[object, ...]:
    kinds = [(each.dtype, each.shape[1:]) for each in part.by_row]
    shared = [None if each is None else tuple(each.tolist()) for each in (part.table, part.order)]
    return part.columns, part.powers, part.zeros is None, part.factors is None, *kinds, *shared


def _joined(parts: Sequence[Packed]) -> Packed:
    if len(parts) == 1:
        return parts[0]
    rest = iter(zip(*(part.by_row for part in parts), strict=True))
    return parts[0].rows(lambda _: torch.cat(next(rest)))
