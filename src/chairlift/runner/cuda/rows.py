"""Where requests live on the device: a row of the block tables and of the last sampled tokens each.

Always: of the requests that were planned last, as many as there are rows keep theirs; a row that goes to another is
filled anew. The host knows what the device holds, so only differences travel.
"""

from collections import OrderedDict
from collections.abc import Sequence

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.request import Request


class Row:
    __slots__ = ("blocks", "index", "num_filled", "request")

    def __init__(self, index: int) -> None:
        self.index = index
        self.request: Request | None = None
        self.blocks: Sequence[BlockId] = ()
        self.num_filled = 0


class Rows:
    def __init__(self, capacity: int) -> None:
        self._free = [Row(i) for i in reversed(range(capacity))]
        self._rows: OrderedDict[RequestId, Row] = OrderedDict()

    def of(self, request: Request, arrivals: list[tuple[int, Request]]) -> Row:
        """Notes (row, request) where the row was another's."""
        row = self._rows.get(request.id)
        if row is None:
            row = self._free.pop() if self._free else self._rows.popitem(last=False)[1]
            self._rows[request.id] = row
        else:
            self._rows.move_to_end(request.id)
        if row.request is not request:
            row.request, row.blocks, row.num_filled = request, (), 0
            arrivals.append((row.index, request))
        return row

    def fill(self, row: Row, blocks: Sequence[BlockId], num_blocks: int, updates: list[tuple[int, int, int]]) -> None:
        """Notes (row, place, block) for what the device's table lacks."""
        if row.blocks is not blocks:  # replaced: nothing of the old one may be relied on
            row.blocks, row.num_filled = blocks, 0
        if row.num_filled < num_blocks:
            updates.extend((row.index, i, blocks[i]) for i in range(row.num_filled, num_blocks))
            row.num_filled = num_blocks

    def forget_tables(self) -> None:
        """After a step that failed, nobody knows which of its blocks have travelled."""
        for row in self._rows.values():
            row.num_filled = 0
