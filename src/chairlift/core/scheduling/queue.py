"""A queue of requests ordered by rank, ties by id; entering, leaving and removal cost no more than log n."""

import heapq

from chairlift.core.ids import RequestId
from chairlift.core.memory.preemption import Rank


class RankedQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[Rank, RequestId]] = []
        self._ranks: dict[RequestId, Rank] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def push(self, request: RequestId, rank: Rank) -> None:
        heapq.heappush(self._heap, (rank, request))
        self._ranks[request] = rank

    def first(self) -> RequestId | None:
        while self._heap:
            rank, request = self._heap[0]
            if self._ranks.get(request) == rank:
                return request
            heapq.heappop(self._heap)
        return None

    def remove(self, request: RequestId) -> None:
        """Its heap entry stays until it reaches the top, or until stale entries are the majority."""
        self._ranks.pop(request, None)
        if len(self._heap) > 2 * len(self._ranks) + 16:
            self._heap = [entry for entry in self._heap if self._ranks.get(entry[1]) == entry[0]]
            heapq.heapify(self._heap)
