"""A routing rule: one user to the first replica, all others to all replicas in turn."""

from chairlift.core.routing.replicas import Replicas
from chairlift.core.routing.router import Asked
from chairlift.core.routing.rules import RoundRobin

SMALL = "small"


class OneCorner(RoundRobin):
    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        return 0 if asked.user == SMALL and among & 1 else super().choose(asked, among, replicas)
