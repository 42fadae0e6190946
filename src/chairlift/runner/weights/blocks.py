"""Quantised matrices as a file stores them: blocks of integers with scales."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.models.files.gguf.header import TENSOR_TYPES
from chairlift.models.shards import Cut
from chairlift.models.tensors import Part
from chairlift.runner.ops import Weight
from chairlift.runner.weights.source import places


@dataclass(frozen=True, slots=True)
class Blocks:
    name: str  # of tensor and file, for messages
    type: int  # of its blocks, GGUF's number
    shape: tuple[int, ...]  # [out, in]
    rows: NDArray[np.int64]  # [out]: the address of each row's first block; of several matrices one after the other
    memory: NDArray[np.uint8]  # keeps the addresses valid


def stored_bytes(blocks: Blocks) -> NDArray[np.uint8]:
    """A copy [out, groups, bytes of a group] of rows that lie one after the other."""
    (num_rows, num_columns), (_, width, size) = blocks.shape, TENSOR_TYPES[blocks.type]
    first, num_groups = int(blocks.rows[0]) - blocks.memory.ctypes.data, num_columns // width
    stored = blocks.memory[first : first + num_rows * num_groups * size]
    return stored.reshape(num_rows, num_groups, size).copy()


def of_expert(blocks: Blocks, expert: int) -> Blocks:
    """One matrix of blocks of shape [experts, out, in]."""
    count, *shape = blocks.shape
    return replace(blocks, shape=tuple(shape), rows=blocks.rows.reshape(count, -1)[expert])


@runtime_checkable
class BlockSource(Protocol):
    """A source of tensors with some in blocks."""

    def blocks(self, name: str, shape: tuple[int, ...]) -> Blocks | None:
        """None: the tensor is not in blocks."""


@runtime_checkable
class CutBlockSource(BlockSource, Protocol):
    def blocks(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Blocks | None:
        """With a cut that part of it. Raises `InvalidConfig` where it goes through a block."""


@runtime_checkable
class KeepsBlocks(Protocol):
    """Operations that multiply by blocks."""

    @property
    def block_types(self) -> frozenset[int]: ...

    def blocks_weight(self, parts: Sequence[Blocks], bias: Tensor | None, dtype: torch.dtype) -> Weight:
        """One matrix of stacked parts, with outputs of this type."""


def kept_blocks(source: object, ops: object, parts: Sequence[Part]) -> list[Blocks] | None:
    """The parts of a matrix as blocks, if the source has all of them in types that the operations know."""
    return stored_blocks(source, parts, ops.block_types) if isinstance(ops, KeepsBlocks) else None


def stored_blocks(source: object, parts: Sequence[Part], types: frozenset[int]) -> list[Blocks] | None:
    """The same, if the source has all of them in these types."""
    if not isinstance(source, BlockSource):
        return None
    kept = []
    for part in parts:
        blocks = source.blocks(part.name, part.shape)
        if blocks is None or blocks.type not in types:
            return None
        if part.order is not None:
            blocks = replace(blocks, rows=blocks.rows[places(part.order, len(blocks.rows))])
        kept.append(blocks)
    return kept
