"""The earliest deadline first; requests without one come after all that have one."""

from collections.abc import Iterable
from math import inf

from chairlift.core.ids import RequestId
from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import Standing
from chairlift.core.queue import Rank


class Deadline(Ranked):
    def rank(self, standing: Standing) -> Rank:
        deadline = standing.request.deadline_s
        return (inf if deadline is None else standing.arrival + deadline, standing.arrival)

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The one with the most time left, of those the newest."""
        return max(running, key=lambda s: (*self.rank(s), s.id)).id
