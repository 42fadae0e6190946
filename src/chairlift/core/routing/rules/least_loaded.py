"""The replica with the fewest tokens to compute and requests running."""

from chairlift.core.routing.replicas import Replicas
from chairlift.core.routing.router import Asked, Router


class LeastLoaded(Router):
    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        return replicas.least_loaded(among)
