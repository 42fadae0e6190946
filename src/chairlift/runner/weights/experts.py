"""Reads the matrices of experts: one by one, all in one tensor, as rows or columns, in four bits.

Always: what comes out is [experts, rows, columns], rows of the gate before those of the up projection.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from chairlift.models.tensors import Matrix, Part
from chairlift.runner.ops import ExpertWeight, MakeWeight, Ops, TakesWeights, each_weight
from chairlift.runner.weights import mxfp4
from chairlift.runner.weights.blocks import Blocks, KeepsBlocks, kept_blocks, of_expert, stored_blocks, stored_bytes
from chairlift.runner.weights.source import ByteSource, TensorSource
from chairlift.runner.weights.transfer import Transfer


@runtime_checkable
class KeepsMxfp4(Protocol):
    """Operations that multiply by weights of four bits."""

    def mxfp4_experts(self, blocks: Tensor, scales: Tensor, bias: Tensor | None) -> ExpertWeight:
        """blocks [X, out, in / 2] as `mxfp4.in_halves` has them, scales [X, out, in / 32], bias [X, out]"""


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
        if self.as_stored and isinstance(self.ops, KeepsMxfp4) and (packed := self._packed(matrix, count)):
            return self.ops.mxfp4_experts(*packed, bias)
        blocks = kept_blocks(self.source, self.ops, matrix.parts) if self.as_stored else None
        if blocks is not None:
            return self._in_blocks(blocks, count, bias)
        stacked = self._widened(matrix) if matrix.scales else self._stacked(matrix.parts, count, 2)
        if self.make is None:
            return self.ops.expert_weight(stacked, bias)
        assert isinstance(self.ops, TakesWeights)
        return each_weight(self.ops, self.make, stacked, bias)

    def _in_blocks(self, blocks: Sequence[Blocks], count: int, bias: Tensor | None) -> ExpertWeight:
        assert isinstance(self.ops, KeepsBlocks) and isinstance(self.ops, TakesWeights)
        own = [[of_expert(part, expert) for part in blocks] for expert in range(count)]
        biases = [None] * count if bias is None else list(bias)
        weights = [self.ops.blocks_weight(*each, self.dtype) for each in zip(own, biases, strict=True)]
        return self.ops.expert_weights(weights)

    def _stacked(self, parts: Sequence[Part], count: int, rank: int) -> Tensor:
        """[experts, rows, ...]; rank: of one expert's part. Other parts hold rows of every expert."""
        if len(parts[0].shape) == rank:
            return self._one_by_one(parts).unflatten(0, (count, -1))
        shapes = [own_shape(part) for part in parts]
        heights = [shape[0] for shape in shapes]
        stacked = self._empty((count, sum(heights), *shapes[0][1:]), self.dtype)
        for part, rows in zip(parts, stacked.split(heights, dim=1), strict=True):
            for own, to in zip(self.source.read(part.name, part.shape), rows, strict=True):
                self.transfer.copy_changed(own, to, partial(in_rows, part))
        return stacked

    def _one_by_one(self, parts: Sequence[Part]) -> Tensor:
        heights = [part.shape[0] for part in parts]
        stacked = self._empty((sum(heights), *parts[0].shape[1:]), self.dtype)
        for part, rows in zip(parts, stacked.split(heights), strict=True):
            self.transfer.copy(self.source.read(part.name, part.shape), rows)
        return stacked

    def _packed(self, matrix: Matrix, count: int) -> tuple[Tensor, Tensor] | None:
        """None: the file has them in other types."""
        if matrix.scales:
            return self._with_scales_apart(matrix)
        blocks = stored_blocks(self.source, matrix.parts, frozenset({mxfp4.GGUF_TYPE}))
        return None if blocks is None else self._with_scales_inside(blocks, count)

    def _with_scales_inside(self, parts: Sequence[Blocks], count: int) -> tuple[Tensor, Tensor]:
        heights, groups = [part.shape[1] for part in parts], parts[0].shape[2] // 32
        packed = self._empty((count, sum(heights), groups * 16), torch.uint8)
        powers = self._empty((count, sum(heights), groups), torch.uint8)
        for part, columns, scales in zip(parts, packed.split(heights, 1), powers.split(heights, 1), strict=True):
            for expert in range(count):
                stored = torch.from_numpy(stored_bytes(of_expert(part, expert)))
                mxfp4.check_scales(stored[..., 0], part.name)
                self.transfer.copy(stored[..., 1:].flatten(-2), columns[expert])
                self.transfer.copy(stored[..., 0], scales[expert])
        return packed, powers

    def _with_scales_apart(self, matrix: Matrix) -> tuple[Tensor, Tensor]:
        count, num_rows, groups, _ = matrix.parts[0].shape
        packed = self._empty((count, num_rows, groups * 16), torch.uint8)
        powers = self._empty((count, num_rows, groups), torch.uint8)
        (part,), (of_scales,) = matrix.parts, matrix.scales
        for expert, (blocks, scales) in enumerate(self._four_bits(matrix)):
            self.transfer.copy_changed(blocks, packed[expert], lambda own: mxfp4.in_halves(in_rows(part, own)))
            self.transfer.copy_changed(scales, powers[expert], partial(in_rows, of_scales))
        return packed, powers

    def _widened(self, matrix: Matrix) -> Tensor:
        count, num_rows, groups, _ = matrix.parts[0].shape
        stacked = self._empty((count, num_rows, groups * 32), self.dtype)
        (part,), (of_scales,) = matrix.parts, matrix.scales
        for own, (blocks, scales) in zip(stacked, self._four_bits(matrix), strict=True):
            self.transfer.copy(mxfp4.widened(in_rows(part, blocks), in_rows(of_scales, scales)), own)
        return stacked

    def _four_bits(self, matrix: Matrix) -> Iterator[tuple[Tensor, Tensor]]:
        """Blocks [rows, groups, 16] and scales [rows, groups] of each expert, in the order of the file."""
        assert isinstance(self.source, ByteSource)
        (part,), (of_scales,) = matrix.parts, matrix.scales
        scales = self.source.read_bytes(of_scales.name, of_scales.shape)
        mxfp4.check_scales(scales, f"{self.source.file_of(of_scales.name)}: tensor {of_scales.name}")
        scales = scales.clone()  # it is valid until the next is read
        blocks = self.source.read_bytes(part.name, part.shape)
        yield from zip(blocks, scales, strict=True)

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)


def own_shape(part: Part) -> tuple[int, ...]:
    """Of one expert's rows in a part that has those of every one."""
    shape = part.shape[1:]
    return shape[::-1] if part.is_transposed else shape


def in_rows(part: Part, own: Tensor) -> Tensor:
    """One expert's tensor as rows, those of the gate before those of the up projection."""
    own = own.t() if part.is_transposed else own
    return torch.cat((own[::2], own[1::2])) if part.is_alternating else own
