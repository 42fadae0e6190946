"""Reads the matrices of experts: one by one, all in one tensor, as rows or columns, in four bits.

Always: what comes out is [experts, rows, columns], rows of the gate before those of the up projection.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from chairlift.models.parts import Matrix, Part
from chairlift.runner.ops import ExpertWeight, MakeWeight, Ops, TakesWeights, each_weight
from chairlift.runner.weights import mxfp4
from chairlift.runner.weights.source import Stored, TensorSource, kept, stored_part
from chairlift.runner.weights.transfer import Transfer


@dataclass(frozen=True, slots=True)
class ExpertReader:
    ops: Ops
    source: TensorSource
    dtype: torch.dtype
    device: torch.device
    make: MakeWeight | None  # of each expert's matrix; None: as `Ops.expert_weight` does
    as_stored: bool
    transfer: Transfer

    def weight(self, matrix: Matrix, count: int) -> ExpertWeight:
        bias = self._stacked(matrix.bias, count, 1) if matrix.bias else None
        if len(matrix.parts[0].shape) == 2 and (weights := self._each_kept(matrix.parts, count, bias)):
            return weights
        keeps = self.ops.keeps_experts if self.as_stored else {}
        if len(matrix.parts[0].shape) == 2:
            if whole := self._stacked_kept(matrix.parts, count, keeps):
                return keeps[whole.kind]([whole], bias, self.dtype)
        elif parts := kept(self.source, matrix.parts, keeps):
            kind = parts[0].kind
            return keeps[kind]([self._packed(parts, matrix.parts)] if kind == mxfp4.MXFP4 else parts, bias, self.dtype)
        stacked = self._stacked(matrix.parts, count, 2)
        if self.make is None:
            return self.ops.expert_weight(stacked, bias)
        assert isinstance(self.ops, TakesWeights)
        return each_weight(self.ops, self.make, stacked, bias)

    def _each_kept(self, parts: Sequence[Part], count: int, bias: Tensor | None) -> ExpertWeight | None:
        """Of experts in tensors of their own, one after the other."""
        keeps, each, weights = self.ops.keeps if self.as_stored else {}, len(parts) // count, []
        for expert in range(count if isinstance(self.ops, TakesWeights) else 0):
            own = kept(self.source, parts[expert * each : (expert + 1) * each], keeps)
            if own is None:
                return None
            weights.append(keeps[own[0].kind](own, None if bias is None else bias[expert], self.dtype))
        return self.ops.expert_weights(weights) if isinstance(self.ops, TakesWeights) and weights else None

    def _stacked_kept(self, parts: Sequence[Part], count: int, kinds: Collection[str]) -> Stored | None:
        """Of experts in tensors of their own, as one on the device; None: they are not stored alike."""
        each, stacked, first = len(parts) // count, [], None
        for expert in range(count):
            own = kept(self.source, parts[expert * each : (expert + 1) * each], kinds)
            if own is None or any(not _is_alike(part, own[0]) for part in own):
                return None
            if first is None:
                first = own[0]
                heights = [part.shape[0] for part in own]
                stacked = [self._empty((count, sum(heights), *t.shape[1:]), t.dtype) for t in first.tensors]
            if not _is_alike(own[0], first):
                return None
            for role, tensor in enumerate(stacked):
                for part, rows in zip(own, tensor[expert].split(heights), strict=True):
                    self.transfer.copy(part.tensors[role], rows)
        assert first is not None
        shape = count, sum(heights), first.shape[1]
        if first.kind == mxfp4.MXFP4:
            blocks, scales, change = mxfp4.apart(replace(first, tensors=tuple(stacked)))
            stacked = [change(blocks), scales]
        return replace(first, tensors=tuple(stacked), shape=shape)

    def _stacked(self, parts: Sequence[Part], count: int, rank: int) -> Tensor:
        """[experts, rows, ...]; rank: of one expert's part. Other parts hold rows of every expert."""
        if len(parts[0].shape) == rank:
            return self._one_by_one(parts).unflatten(0, (count, -1))
        shapes = [own_shape(part) for part in parts]
        heights = [shape[0] for shape in shapes]
        stacked = self._empty((count, sum(heights), *shapes[0][1:]), self.dtype)
        for part, rows in zip(parts, stacked.split(heights, dim=1), strict=True):
            for own, to in zip(self._of_each(part), rows, strict=True):
                self.transfer.copy_changed(own, to, partial(in_rows, part))
        return stacked

    def _one_by_one(self, parts: Sequence[Part]) -> Tensor:
        heights = [part.shape[0] for part in parts]
        stacked = self._empty((sum(heights), *parts[0].shape[1:]), self.dtype)
        for part, rows in zip(parts, stacked.split(heights), strict=True):
            self.transfer.copy(self.source.read(part.name, part.shape), rows)
        return stacked

    def _packed(self, stored: Sequence[Stored], parts: Sequence[Part]) -> Stored:
        """All in MXFP4 as one, on the device, in the order of the kernels."""
        heights, (count, _, width) = [each.shape[1] for each in stored], stored[0].shape
        shape = count, sum(heights), width
        packed = self._empty((*shape[:2], width // 2), torch.uint8)
        powers = self._empty((*shape[:2], width // stored[0].group), torch.uint8)
        pieces = zip(stored, parts, packed.split(heights, 1), powers.split(heights, 1), strict=True)
        for each, part, columns, exponents in pieces:
            blocks, scales, change = mxfp4.apart(each)
            for expert in range(count):
                self.transfer.copy_changed(blocks[expert], columns[expert], partial(_changed, part, change))
                self.transfer.copy_changed(scales[expert], exponents[expert], partial(in_rows, part))
        return replace(stored[0], tensors=(packed, powers), shape=shape)

    def _of_each(self, part: Part) -> Iterable[Tensor]:
        """Every expert's numbers; where they are in four bits, one expert's at a time."""
        stored = stored_part(self.source, part)
        if stored is None or len(stored.tensors) == 1:
            return self.source.read(part.name, part.shape)
        blocks, scales, _ = mxfp4.apart(stored)
        return map(mxfp4.widened, blocks, scales)

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)


def _is_alike(one: Stored, other: Stored) -> bool:
    """They can be rows of one matrix."""
    sides = [tensor.shape[1:] for tensor in one.tensors] == [tensor.shape[1:] for tensor in other.tensors]
    return sides and (one.kind, one.group, one.order) == (other.kind, other.group, None)


def _changed(part: Part, change: Callable[[Tensor], Tensor], own: Tensor) -> Tensor:
    return change(in_rows(part, own))


def own_shape(part: Part) -> tuple[int, ...]:
    """Of one expert's rows in a part that has those of every one."""
    shape = part.shape[1:]
    return shape[::-1] if part.is_transposed else shape


def in_rows(part: Part, own: Tensor) -> Tensor:
    """One expert's tensor as rows, those of the gate before those of the up projection."""
    own = own.t() if part.is_transposed else own
    return torch.cat((own[::2], own[1::2])) if part.is_alternating else own
