"""The replica that should make the first token soonest: the shortest queue, less what it has cached of the prompt.

    time to the first token ~ the replica's load + the prompt's work - weight x work of what is cached

Work is in tokens (`work.py`); replicas of a server are alike, so it compares as seconds do. A prefix outweighs `weight`
times as much of a queue and no more: a replica that all want is left when waiting there costs more than computing
elsewhere. Of equal ones the replica that has more of the prompt is taken, so requests with one prefix stay together.
"""

from chairlift.core.routing.replicas import Replicas
from chairlift.core.routing.router import Asked, Router, rebalance_period
from chairlift.core.routing.work import work


class Prefix(Router):
    needs_hashes = True

    def __init__(self, weight: float = 1.0, rebalance: float = 0.25) -> None:
        """`weight`: what a cached token counts as; above 1 prefixes stay together even where the queue is longer.
        `rebalance`: as of `least-loaded`."""
        if weight < 0:
            raise ValueError("weight must not be below 0")
        self._weight = weight
        self.rebalance = rebalance_period(rebalance)

    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        chosen, least = -1, float("inf")
        for num_spans, holders in reversed(replicas.prefixes.match(asked.hashes, among)):
            replica = replicas.least_loaded(holders)
            cost = replicas.load(replica) - self._weight * work(num_spans * asked.span)
            if chosen < 0 or cost < least:
                chosen, least = replica, cost
        return chosen
