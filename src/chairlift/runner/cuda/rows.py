"""Where requests live on the device: a row of the block tables and of the last sampled tokens each.

Always: of the requests that were planned last, as many as there are rows keep theirs; a row that goes to another is
filled anew. The host knows what the device holds, so only differences travel. Who decodes is mostly who decoded in the
step before, so that is remembered.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.request import Request

Arrivals = list[tuple[int, Request]]  # who got which row
Updates = list[tuple[int, int, int]]  # (row, place, block) that the device's tables lack


class Row:
    __slots__ = ("blocks", "index", "num_filled", "request")

    def __init__(self, index: int) -> None:
        self.index = index
        self.request: Request | None = None
        self.blocks: Sequence[BlockId] = ()
        self.num_filled = 0


class Rows:
    def __init__(self, capacity: int) -> None:
        self._all = [Row(i) for i in range(capacity)]
        self._num_given = 0  # the first rows; the others were never anybody's
        self._rows: dict[RequestId, Row] = {}
        self._ticks = np.zeros(capacity, np.int64)  # when each was last planned for
        self._tick = 0
        self._crowd: Sequence[Request] = ()  # of the last call of `of_all`, with their rows
        self._crowd_rows: list[Row] = []
        self._crowd_indices = np.zeros(0, np.int32)

    def of(self, request: Request, arrivals: Arrivals) -> Row:
        """Notes (row, request) where the row was another's."""
        row = self._rows.get(request.id)
        if row is None:
            row = self._rows[request.id] = self._give()
        self._tick += 1
        self._ticks[row.index] = self._tick
        if row.request is not request:
            row.request, row.blocks, row.num_filled = request, (), 0
            arrivals.append((row.index, request))
            self._crowd = ()  # it may have been one of theirs
        return row

    def _give(self) -> Row:
        if self._num_given < len(self._all):
            self._num_given += 1
            return self._all[self._num_given - 1]
        row = self._all[int(self._ticks.argmin())]
        assert row.request is not None
        del self._rows[row.request.id]
        return row

    def fill(self, row: Row, blocks: Sequence[BlockId], num_blocks: int, updates: Updates) -> None:
        """Notes (row, place, block) for what the device's table lacks."""
        if row.blocks is not blocks:  # replaced: nothing of the old one may be relied on
            row.blocks, row.num_filled = blocks, 0
        if row.num_filled < num_blocks:
            updates.extend([(row.index, i, blocks[i]) for i in range(row.num_filled, num_blocks)])
            row.num_filled = num_blocks

    def of_all(
        self, requests: Sequence[Request], tables: Sequence[Sequence[BlockId]], lengths: Sequence[int],
        arrivals: Arrivals, updates: Updates,
    ) -> NDArray[np.int32]:  # fmt: skip
        """The rows of many, filled: the same as one after the other, and fast where they are those of the last call."""
        if requests != self._crowd:
            self._crowd_rows = self._look_up(requests, arrivals)
            self._crowd_indices = np.fromiter([row.index for row in self._crowd_rows], np.int32, len(requests))
            self._crowd = requests
        self._ticks[self._crowd_indices] = np.arange(self._tick + 1, self._tick + 1 + len(requests))
        self._tick += len(requests)
        for row, blocks, num_blocks in zip(self._crowd_rows, tables, lengths, strict=True):
            if row.blocks is not blocks or row.num_filled < num_blocks:
                self.fill(row, blocks, num_blocks, updates)
        return self._crowd_indices

    def _look_up(self, requests: Sequence[Request], arrivals: Arrivals) -> list[Row]:
        rows = [self._rows.get(request.id) for request in requests]
        known = [row for row, request in zip(rows, requests, strict=True) if row and row.request is request]
        if len(known) == len(requests):
            return known
        return [self.of(request, arrivals) for request in requests]

    def forget_tables(self) -> None:
        """After a step that failed, nobody knows which of its blocks have travelled."""
        for row in self._all:
            row.num_filled = 0
