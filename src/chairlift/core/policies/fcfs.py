"""First come, first served.

Bound: nobody is passed by a request that came later.
"""

from chairlift.core.policies.ranked import Ranked
from chairlift.core.policy import Standing
from chairlift.core.queue import Rank


class Fcfs(Ranked):
    def rank(self, standing: Standing) -> Rank:
        return (standing.arrival,)
