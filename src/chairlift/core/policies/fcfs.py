"""First come, first served.

Bound: no request is overtaken by one that arrives later.
"""

from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import RequestView
from chairlift.core.scheduling.queue import Rank


class Fcfs(Ranked):
    def rank(self, view: RequestView) -> Rank:
        return (view.arrival,)
