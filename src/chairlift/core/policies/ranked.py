"""Policies whose order is a number that is known when a request begins to wait."""

from abc import abstractmethod
from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policy import Policy, RequestView
from chairlift.core.scheduling.queue import Rank, RankedQueue


class Ranked(Policy):
    """Smaller ranks first, ties by id. The newest request is the victim, so that the oldest always makes progress;
    `victim_rank` names another, larger ranks first."""

    def __init__(self) -> None:
        self._queue = RankedQueue()

    @abstractmethod
    def rank(self, view: RequestView) -> Rank: ...

    def push(self, view: RequestView, now: float) -> None:
        self._queue.push(view.id, self.rank(view))

    def first(self, now: float) -> RequestId | None:
        return self._queue.first()

    def remove(self, view: RequestView) -> None:
        self._queue.remove(view.id)

    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        return max(running, key=lambda view: (*self.victim_rank(view), view.id)).id

    def victim_rank(self, view: RequestView) -> Rank:
        return (view.arrival,)
