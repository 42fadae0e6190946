"""The replica with the fewest tokens to compute and requests running."""

from chairlift.core.routing.replicas import Replicas
from chairlift.core.routing.router import Asked, Router, rebalance_period


class LeastLoaded(Router):
    def __init__(self, rebalance: float = 0.25) -> None:
        """`rebalance`: seconds between two looks for waiting requests that had better go elsewhere; 0: they stay."""
        self.rebalance = rebalance_period(rebalance)

    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        return replicas.least_loaded(among)
