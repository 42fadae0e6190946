"""Mixers with a state: the tokens of a request in tiles, each from the state that the one before left.

    tokens        0..15      16..31     32..47          a tile is `block_size` tokens of a text, from its start
    tile          0          1          2
    chunk 20..40             ++++++++++ ++++            reads the state after 16, and what came in of 16..19
                                                        writes the state after 32, and what came in of 32..39

A tile is computed as a whole, in one shape, whatever its tokens: those of steps before from what came in then, those to
come as zeros. So a row has the same bits in a prompt, in a chunk that starts anywhere, and as a single token.

Always: nothing that a request may still go on from is overwritten: half c mod 2 of its pages has what came in of tile
c, and the state before it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from chairlift.models.mixers.mixer import Fixed
from chairlift.runner.mixers.mixer import State
from chairlift.runner.ops import Batch


class Memory(NamedTuple):
    """What a request's next tile starts from: `Fixed` numbers, at first zeros."""

    wide: Tensor
    narrow: Tensor


# Of the rows [block_size, row] of a tile: what comes out of them [block_size, W], and the memory after the last.
Tile = Callable[[Tensor, Memory], tuple[Tensor, Memory]]


@dataclass(frozen=True, slots=True)
class Tiles:
    fixed: Fixed
    num_outputs: int
    wide: torch.dtype

    def through(self, rows: Tensor, state: State, batch: Batch, tile: Tile) -> Tensor:
        """rows [T, row], of all chunks -> [T, W], wide"""
        out = rows.new_empty((len(rows), self.num_outputs), dtype=self.wide)
        starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
        pages = _Pages(self, state, state[0].shape[2], rows.dtype)
        for chunk, end in enumerate(contexts):
            own = slice(starts[chunk], starts[chunk + 1])
            writes = {write.position: write.pages for write in batch.state_writes.get(chunk, ())}
            out[own] = self._chunk(rows[own], end, batch.tables[chunk], batch.num_tile_pages, writes, pages, tile)
        return out

    def _chunk(
        self, rows: Tensor, end: int, halves: Tensor, num_tile: int, writes: dict[int, Tensor], pages: "_Pages",
        tile: Tile,
    ) -> Tensor:  # fmt: skip
        size, start = pages.size, end - len(rows)
        first, last = start // size, end // size
        kept, memory = pages.read(halves[first % 2], num_tile, start)
        came_in = torch.cat((kept, rows))
        found = []
        for index, part in enumerate(came_in.split(size), first):
            padded = torch.zeros_like(came_in[:1]).expand(size, -1).clone()
            padded[: len(part)] = part
            given, after = tile(padded, memory)
            found.append(given[: len(part)])
            if len(part) == size:
                memory = after
                if (position := (index + 1) * size) in writes:
                    pages.write_state(writes[position], memory)
        if last - first <= 1:  # drafts may pass the end of a tile, and be wrong
            pages.write_rows(halves[first % 2, :num_tile], came_in[:size])
        if last > first:
            own = halves[last % 2]
            pages.write_rows(own[:num_tile], came_in[(last - first) * size :])
            pages.write_state(own[num_tile:], memory)
        return torch.cat(found)[len(kept) :]


class _Pages:
    """A layer's pages as bytes: each page is a row of every tensor of the layer, one after the other."""

    def __init__(self, tiles: Tiles, state: State, size: int, narrow: torch.dtype) -> None:
        self.size = size
        self._memories = [memory.view(torch.uint8).flatten(1) for memory in state]
        self._fixed, self._wide, self._narrow = tiles.fixed, tiles.wide, narrow

    def read(self, half: Tensor, num_tile: int, start: int) -> tuple[Tensor, Memory]:
        """What came in of the tile's tokens before this one, and the memory before the tile."""
        fixed, count = self._fixed, start % self.size
        kept = self._read(half[:num_tile]) if count else self._memories[0].new_empty(0)
        rows = kept[: count * fixed.row * self._narrow.itemsize].view(self._narrow).view(count, fixed.row)
        if start < self.size:
            device = half.device
            wide = torch.zeros(fixed.wide, dtype=self._wide, device=device)
            return rows, Memory(wide, torch.zeros(fixed.narrow, dtype=self._narrow, device=device))
        found, middle = self._read(half[num_tile:]), fixed.wide * self._wide.itemsize
        end = middle + fixed.narrow * self._narrow.itemsize
        return rows, Memory(found[:middle].view(self._wide), found[middle:end].view(self._narrow))

    def write_rows(self, pages: Tensor, rows: Tensor) -> None:
        if len(rows):
            self._write(pages, rows.contiguous().flatten().view(torch.uint8))

    def write_state(self, pages: Tensor, memory: Memory) -> None:
        parts = [part.contiguous().view(torch.uint8) for part in memory if len(part)]
        self._write(pages, torch.cat(parts))

    def _read(self, pages: Tensor) -> Tensor:
        return torch.cat([memory[pages] for memory in self._memories], dim=1).flatten()

    def _write(self, pages: Tensor, content: Tensor) -> None:
        """To the first of the pages, as many as it fills."""
        widths = [memory.shape[1] for memory in self._memories]
        count = -(-len(content) // sum(widths))
        padded = content.new_zeros(count * sum(widths))
        padded[: len(content)] = content
        for memory, part in zip(self._memories, padded.view(count, -1).split(widths, dim=1), strict=True):
            memory[pages[:count]] = part
