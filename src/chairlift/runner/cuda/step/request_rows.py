"""The rows of requests on the device: one of the block tables and of the last sampled tokens each.

Always: the requests that were planned last keep their rows, as many as there are; a row that goes to another is filled
anew. Requests are known by their ids, and plans name those with another block table. `tables` are what the device
holds, so only differences travel. The decodes of the step before are remembered, as most come again.

Groups of layers that do not keep all tokens have tables of their own. On the device they lie behind the first, each
with a row more for padding; pages that no coming token of a request sees never travel. Those of states are few, and
travel at once: of each half the pages of rows, then those of the state, as the group has them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.memory.pages import Fixed, Kind
from chairlift.core.request import Request
from chairlift.models.kv_groups import WHOLE, Fit

Arrivals = list[tuple[int, Request]]  # requests that got a row
Updates = list[int]  # row, place, block; row, ...: what the device's tables lack


class RequestRows:
    def __init__(
        self, capacity: int, width: int, kinds: Sequence[Kind] = (), num_groups: Sequence[int] = (), fit: Fit = WHOLE
    ) -> None:
        """width: blocks of the longest table. num_groups: of each kind. fit: of windows to pages."""
        self.tables = np.zeros((capacity, width), np.int32)
        num_groups = num_groups or [kind.num_pages // fit.pages_a_block for kind in kinds]
        # Of groups with a window, which find their tokens' slots there.
        num_views = sum(count for kind, count in zip(kinds, num_groups, strict=True) if not isinstance(kind, Fixed))
        self.view_tables = np.zeros((num_views, capacity, width * fit.pages_a_block), np.int32)
        self._kinds, self._num_groups, self._fit = kinds, num_groups, fit
        self._num_viewed = np.zeros((len(kinds), capacity), np.int32)  # blocks of each that the device has in these
        self._owners: list[RequestId] = []  # of the rows that were given so far
        self._rows: dict[RequestId, int] = {}
        self._steps = np.zeros(capacity, np.int64)  # in which each was last planned for
        self._step = 0
        self._num_filled = np.zeros(capacity, np.int32)  # blocks of each that the device has
        self._crowd: Sequence[Request] = ()  # of the last call of `of_all`, with their rows
        self._crowd_rows = np.zeros(0, np.int32)

    def begin(self, step: int, new_tables: Sequence[RequestId]) -> None:
        """A step that does not count on from the last is another scheduler's, which may reuse ids."""
        if step <= self._step:
            self._owners, self._rows, self._crowd = [], {}, ()
        self._step = step
        for request in new_tables:
            if (row := self._rows.get(request)) is not None:
                self._num_filled[row] = self._num_viewed[:, row] = 0

    def of(self, request: Request, arrivals: Arrivals) -> int:
        """Notes (row, request) where the row was another's."""
        row = self._rows.get(request.id)
        if row is None:
            row = self._rows[request.id] = self._give(request.id)
            self._num_filled[row] = self._num_viewed[:, row] = 0
            arrivals.append((row, request))
            self._crowd = ()  # the row may have been one of theirs
        self._steps[row] = self._step
        return row

    def _give(self, owner: RequestId) -> int:
        row = len(self._owners)
        if row < len(self._steps):
            self._owners.append(owner)
            return row
        row = int(self._steps.argmin())
        del self._rows[self._owners[row]]
        self._owners[row] = owner
        return row

    def fill(
        self, row: int, tables: Sequence[Sequence[BlockId]], num_blocks: int, start: int, updates: Updates
    ) -> None:
        """Notes (row, place, block) for what the device's tables lack, for a chunk that begins at `start`."""
        first, blocks = int(self._num_filled[row]), tables[0]
        if first < num_blocks:
            self.tables[row, first:num_blocks] = blocks[first:num_blocks]
            self._num_filled[row] = num_blocks
            for place in range(first, num_blocks):
                updates += (row, place, blocks[place])
        view = 0
        for place, (kind, count) in enumerate(zip(self._kinds, self._num_groups, strict=True)):
            if isinstance(kind, Fixed):
                self._fill_states(row, place, view, tables[1 + place], updates)
            else:
                self._fill_views(row, place, view, tables[1 + place], start, updates)
            view += count

    def _fill_views(
        self, row: int, place: int, view: int, pages: Sequence[BlockId], start: int, updates: Updates
    ) -> None:
        """The same of the groups of a kind; view: the first of them."""
        kind = self._kinds[place]
        num, first = kind.num_pages, max(int(self._num_viewed[place, row]), kind.num_behind(start))
        end, (each, num_pieces) = len(pages) // num, self._fit
        if first < end:
            self._num_viewed[place, row] = end
            for index in range(num):
                group, after = divmod(index, each)
                own = [page * num_pieces for page in pages[first * num + index : end * num : num]]
                self.view_tables[view + group, row, first * each + after : end * each : each] = own
                at = row + (1 + view + group) * (len(self.tables) + 1)
                for block, page in enumerate(own, first):
                    updates += (at, block * each + after, page)

    def _fill_states(self, row: int, place: int, view: int, pages: Sequence[BlockId], updates: Updates) -> None:
        """The same of groups with states, whose pages lie one group's after another's, those of rows and of states
        apart."""
        if self._num_viewed[place, row]:
            return
        self._num_viewed[place, row] = len(pages)
        for group, own in enumerate(pages_of_groups(self._kinds[place], pages, self._num_groups[place])):
            at = row + (1 + view + group) * (len(self.tables) + 1)
            for index, page in enumerate(own):
                updates += (at, index, page)

    def of_all(
        self, requests: Sequence[Request], tables: Sequence[Sequence[Sequence[BlockId]]], lengths: Sequence[int],
        starts: Sequence[int], arrivals: Arrivals, updates: Updates,
    ) -> NDArray[np.int32]:  # fmt: skip
        """The rows of many, filled; fast where they are those of the last call."""
        if requests != self._crowd:
            self._crowd_rows = np.fromiter(self._look_up(requests, arrivals), np.int32, len(requests))
            self._crowd = requests
        rows = self._crowd_rows
        self._steps[rows] = self._step
        is_short = self._num_filled[rows] < np.fromiter(lengths, np.int32, len(requests))
        for i in np.flatnonzero(is_short).tolist():
            self.fill(int(rows[i]), tables[i], lengths[i], starts[i], updates)
        return rows

    def _look_up(self, requests: Sequence[Request], arrivals: Arrivals) -> list[int]:
        known = [row for request in requests if (row := self._rows.get(request.id)) is not None]
        return known if len(known) == len(requests) else [self.of(request, arrivals) for request in requests]

    def forget_tables(self) -> None:
        """After a failed step: its blocks may not have travelled."""
        self._num_filled[:] = 0
        self._num_viewed[:] = 0


def pages_of_groups(kind: Kind, pages: Sequence[BlockId], count: int) -> list[list[int]]:
    """Of a request's pages those of each group: of each half those of rows, then those of the state."""
    halves = np.array(pages, np.int32).reshape(2, -1)
    parts = np.split(halves, [kind.num_tile_pages], axis=1)
    own = np.concatenate([part.reshape(2, count, -1) for part in parts], axis=2)
    return [own[:, group].ravel().tolist() for group in range(count)]
