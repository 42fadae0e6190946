"""First come, first served; the newest request steps off first, so the oldest always gets on."""

from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policy import Standing
from chairlift.core.queue import Rank


class Fcfs:
    def rank(self, standing: Standing) -> Rank:
        return (standing.arrival,)

    def victim(self, running: Iterable[Standing]) -> RequestId:
        return max(running, key=lambda standing: (standing.arrival, standing.id)).id
