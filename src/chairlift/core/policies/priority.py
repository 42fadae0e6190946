"""Smaller priority numbers first; a second of waiting is worth `aging` levels.

Bound: a request p levels worse than the best is overtaken only by requests that arrive within p / aging seconds of it.
No bound with aging=0.
"""

from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import RequestView
from chairlift.core.scheduling.queue import Rank


class Priority(Ranked):
    def __init__(self, aging: float = 0.1) -> None:
        super().__init__()
        if aging < 0:
            raise ValueError("aging must not be negative")
        self._aging = aging

    def rank(self, view: RequestView) -> Rank:
        # All age at the same rate, so the order of two requests never changes: it can be a number.
        return (view.request.attributes.priority + self._aging * view.arrival, view.arrival)

    def victim_rank(self, view: RequestView) -> Rank:
        return self.rank(view)
