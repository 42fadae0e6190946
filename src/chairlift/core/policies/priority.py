"""Smaller priority numbers first; a second of waiting is worth `aging` levels.

Bound: a request p levels worse than the best is passed only by requests that come within p / aging seconds of it. With
aging=0 there is none.
"""

from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import Standing
from chairlift.core.queue import Rank


class Priority(Ranked):
    def __init__(self, aging: float = 0.1) -> None:
        super().__init__()
        if aging < 0:
            raise ValueError(f"aging={aging}: must not be negative")
        self._aging = aging

    def rank(self, standing: Standing) -> Rank:
        # All age at the same rate, so the order of two requests never changes: it can be a number.
        return (standing.request.attributes.priority + self._aging * standing.arrival, standing.arrival)

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The least urgent, of those the newest."""
        return max(running, key=lambda s: (*self.rank(s), s.id)).id
