"""A queue ordered by rank, ties by request id; entering, leaving and removal cost no more than log n."""

import heapq
from collections.abc import Iterator

from chairlift.core.ids import RequestId
from chairlift.core.request import Progress

Rank = tuple[float, ...]


class RankedQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[Rank, RequestId]] = []
        self._members: dict[RequestId, Progress] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Progress]:
        return iter(self._members.values())

    def push(self, progress: Progress, rank: Rank) -> None:
        heapq.heappush(self._heap, (rank, progress.id))
        self._members[progress.id] = progress

    def first(self) -> Progress | None:
        while self._heap:
            member = self._members.get(self._heap[0][1])
            if member is not None:
                return member
            heapq.heappop(self._heap)
        return None

    def remove(self, progress: Progress) -> None:
        """Its heap entry stays behind until it comes up, or until stale entries are the majority."""
        del self._members[progress.id]
        if len(self._heap) > 2 * len(self._members) + 16:
            self._heap = [entry for entry in self._heap if entry[1] in self._members]
            heapq.heapify(self._heap)
