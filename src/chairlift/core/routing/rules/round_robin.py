"""One replica after the other, whatever they do."""

from chairlift.core.routing.replicas import Replicas
from chairlift.core.routing.router import Asked, Router


class RoundRobin(Router):
    def __init__(self) -> None:
        self._next = 0

    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        after = among >> self._next << self._next
        bits = after or among
        chosen = (bits & -bits).bit_length() - 1
        self._next = chosen + 1
        return chosen
