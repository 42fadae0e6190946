"""Where the matrices of an adapter lie in a slot, in units that its rank multiplies; and rows in tiles; without torch.

| A of layer 0's qkv | its output's | ... | B of layer 0's qkv | ... |
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chairlift.models.adapters.adapter import as_hugging_face
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import MatrixKey, matrices_by_key

ROWS = 16  # of a tile, as in kernels.py
RANKS = 16  # of a block
RECORD = 2 + ROWS  # of a tile
Words = NDArray[np.int32]


class MatrixPlace(NamedTuple):
    width: int  # inputs
    heights: tuple[int, ...]  # outputs of each part
    down: int  # units before its A
    up: int  # units before its B


class SlotLayout(NamedTuple):
    matrices: dict[MatrixKey, MatrixPlace]
    num_units: int


def slot_layout(config: ModelConfig) -> SlotLayout:
    parts_of = {key: matrix.parts for key, matrix in matrices_by_key(as_hugging_face(config))}
    shapes = {key: (parts[0].shape[1], tuple(part.shape[0] for part in parts)) for key, parts in parts_of.items()}
    matrices, down = {}, 0
    up = sum(width * len(heights) for width, heights in shapes.values())
    for key, (width, heights) in shapes.items():
        matrices[key] = MatrixPlace(width, heights, down, up)
        down, up = down + width * len(heights), up + sum(heights)
    return SlotLayout(matrices, up)


def num_blocks(rank: int) -> int:
    """Of ranks."""
    return -(-rank // RANKS)


def slot_numbers(config: ModelConfig, max_rank: int) -> int:
    """That a slot holds."""
    return slot_layout(config).num_units * num_blocks(max_rank) * RANKS


def max_tiles(num_rows: int, num_slots: int) -> int:
    """Of so many rows: each slot, and the rows without one, have one that is not full at most."""
    return min(num_rows, num_rows // ROWS + num_slots + 1)


def tiles_of(slots: Words, blocks: Sequence[int]) -> Words:
    """[N, RECORD]: the rows of each slot in tiles, in order, those without one last; -1: no row. slots: of each row,
    -1: none; blocks: of ranks, by slot."""
    tiles = []
    for slot in sorted(np.unique(slots).tolist(), key=lambda slot: (slot < 0, slot)):
        rows = np.flatnonzero(slots == slot)
        own = np.full((-(-len(rows) // ROWS), ROWS), -1, np.int32)
        own.reshape(-1)[: len(rows)] = rows
        head = np.array([slot, blocks[slot] if slot >= 0 else 0], np.int32)
        tiles.append(np.column_stack([np.tile(head, (len(own), 1)), own]))
    return np.concatenate(tiles).astype(np.int32) if tiles else np.zeros((0, RECORD), np.int32)
