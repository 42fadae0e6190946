"""For policies whose order is a number that is known when a request begins to wait."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policy import Standing
from chairlift.core.queue import Rank, RankedQueue


class Ranked(ABC):
    """Smaller ranks first, ties by id; the newest request steps off first, so the oldest always gets on."""

    def __init__(self) -> None:
        self._queue = RankedQueue()

    @abstractmethod
    def rank(self, standing: Standing) -> Rank: ...

    def push(self, standing: Standing, now: float) -> None:
        self._queue.push(standing.id, self.rank(standing))

    def first(self, now: float) -> RequestId | None:
        return self._queue.first()

    def remove(self, standing: Standing) -> None:
        self._queue.remove(standing.id)

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        return max(running, key=lambda standing: (standing.arrival, standing.id)).id
