"""What layers with states take of a step: spans of requests, their tiles, and further states to be written.

    tokens     0..15  16..31  32..47       a chunk 20..39 is a span of two units: tiles 1 and 2
    chunk             ++++++++ ++++

Always: on the host plain numpy. On the device padding is spans without tokens, and units of no span.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from chairlift.core.memory.pages import Fixed, Kind
from chairlift.core.plan import Checkpoint, Chunk
from chairlift.runner.cuda.step.columns import Words

SPAN_WIDTH = 7
UNIT_WIDTH = 2


class StateWords(NamedTuple):
    # [R, 7]: first row of the step, tokens, position of the first, row of the tables, its first unit, and of its writes
    # the first and how many
    spans: Words
    units: Words  # [N, 2]: the span, the tile
    writes: Words  # one after the other: after how many tokens, to which pages of all groups

    @property
    def is_single(self) -> bool:
        """No span has tokens of two tiles."""
        return len(self.units) == len(self.spans)


_NO_WRITES = np.zeros(0, np.int32)
NO_STATES = StateWords(np.zeros((0, SPAN_WIDTH), np.int32), np.zeros((0, UNIT_WIDTH), np.int32), _NO_WRITES)


def state_words(
    chunks: Sequence[Chunk], counts: Words, table_rows: Words, checkpoints: Sequence[Checkpoint], tile: int
) -> StateWords:
    """table_rows: of each token."""
    starts = np.fromiter((chunk.start for chunk in chunks), np.int32, len(chunks))
    rows = np.cumsum(counts, dtype=np.int32) - counts
    begun = starts // tile
    num_units = -(-(starts + counts) // tile) - begun
    firsts = np.cumsum(num_units, dtype=np.int32) - num_units
    of_units = np.repeat(np.arange(len(chunks), dtype=np.int32), num_units)
    tiles = np.arange(len(of_units), dtype=np.int32) - np.repeat(firsts - begun, num_units)
    units = np.stack((of_units, tiles), axis=1)
    spans = np.zeros((len(chunks), SPAN_WIDTH), np.int32)
    spans[:, :5] = np.stack((rows, counts, starts, table_rows[rows], firsts), axis=1)
    if not checkpoints:
        return StateWords(spans, units, _NO_WRITES)
    place = {chunk.request.id: index for index, chunk in enumerate(chunks)}
    ordered = sorted(checkpoints, key=lambda each: (place[each.request], each.position))
    for index, each in enumerate(ordered):
        span = spans[place[each.request]]
        span[5] = span[5] if span[6] else index
        span[6] += 1
    writes = np.array([(each.position, *each.pages) for each in ordered], np.int32)
    return StateWords(spans, units, writes.ravel())


class States(NamedTuple):
    """The same on the device, as one group of layers sees it."""

    spans: Tensor  # int32
    units: Tensor
    writes: Tensor  # [N, 1 + pages], at least one
    first_page: int  # of the group, in the pages of a write
    num_tile_pages: int  # of a half of the group's tables, its first
    num_state_pages: int
    is_single: bool = False  # no span has tokens of two tiles


class StateLayout(NamedTuple):
    """What the device has of groups with states."""

    tile: int  # tokens
    num_groups: int
    num_pages: int  # of a state of all groups
    num_tile_pages: int  # of the rows of a tile of all groups
    max_writes: int  # of a step

    @classmethod
    def of(
        cls, kinds: Sequence[Kind], num_groups: Sequence[int], max_tokens: int, max_running: int
    ) -> "StateLayout | None":
        for kind, count in zip(kinds, num_groups, strict=True):
            if isinstance(kind, Fixed):
                most = max_tokens // kind.reach + 3 * max_running
                return cls(kind.block_size, count, kind.num_pages, kind.num_tile_pages, most)
        return None

    @property
    def table_width(self) -> int:
        """Pages of a request, of one group."""
        return 2 * (self.num_pages + self.num_tile_pages) // self.num_groups

    def of_group(self, group: int, spans: Tensor, units: Tensor, writes: Tensor, is_single: bool) -> States:
        num = self.num_pages // self.num_groups
        return States(spans, units, writes, group * num, self.num_tile_pages // self.num_groups, num, is_single)
