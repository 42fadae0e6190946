"""First come, first served.

Bound: no request is overtaken by one that arrives later. The victim is the newest request, or the shortest: the one
with the fewest tokens so far.
"""

from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import RequestView
from chairlift.core.scheduling.queue import Rank

_VICTIMS = ("newest", "shortest")


class Fcfs(Ranked):
    def __init__(self, victim: str = "newest") -> None:
        super().__init__()
        if victim not in _VICTIMS:
            raise ValueError(f"victim must be one of {', '.join(_VICTIMS)}")
        self._victim = victim

    def rank(self, view: RequestView) -> Rank:
        return (view.arrival,)

    def victim_rank(self, view: RequestView) -> Rank:
        return (view.arrival,) if self._victim == "newest" else (-view.num_known, view.arrival)
