"""The routing rules: which replica a request goes to."""

from bisect import bisect_left
from hashlib import blake2b

from chairlift.core.routing.replicas import Replicas, work
from chairlift.core.routing.router import Asked, Router, rebalance_period


class RoundRobin(Router):
    """One replica after the other, whatever they do."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        after = among >> self._next << self._next
        bits = after or among
        chosen = (bits & -bits).bit_length() - 1
        self._next = chosen + 1
        return chosen


class LeastLoaded(Router):
    """The replica with the fewest tokens to compute and requests running."""

    def __init__(self, rebalance: float = 0.25) -> None:
        """`rebalance`: seconds between two looks for waiting requests that had better go elsewhere; 0: they stay."""
        self.rebalance = rebalance_period(rebalance)

    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        return replicas.least_loaded(among)


class Prefix(Router):
    """The replica that should make the first token soonest: the shortest queue, less what it has cached of the prompt.

        time to the first token ~ the replica's load + the prompt's work - weight x work of what is cached

    Work is in tokens (`work`); replicas of a server are alike, so it compares as seconds do. A prefix outweighs
    `weight` times as much of a queue and no more: a replica that all want is left when waiting there costs more
    than computing elsewhere. Of equal ones the replica that has more of the prompt is taken, so requests with one
    prefix stay together.
    """

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


class ByUser(Router):
    """All requests of a user to one replica, and few users to another one when a replica comes or goes.

    Users are dealt by a ring: each replica has points on it, and a user belongs to the replica of the next point.
    Requests without a user go to the least loaded replica.
    """

    def __init__(self, points: int = 64) -> None:
        """`points`: of each replica on the ring; more deal users more evenly."""
        if points < 1:
            raise ValueError("points must be at least 1")
        self._points = points
        self._ring: list[tuple[int, int]] = []  # (place, replica)
        self._count = 0

    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        if not asked.user:
            return replicas.least_loaded(among)
        if self._count != replicas.count:
            self._count = replicas.count
            self._ring = sorted((_place(f"{r} {i}"), r) for r in range(replicas.count) for i in range(self._points))
        start = bisect_left(self._ring, (_place(asked.user), 0))
        places = (self._ring[(start + i) % len(self._ring)] for i in range(len(self._ring)))
        return next(replica for _, replica in places if among >> replica & 1)


def _place(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())


ROUTERS: dict[str, type[Router]] = {
    "prefix": Prefix,
    "least-loaded": LeastLoaded,
    "round-robin": RoundRobin,
    "by-user": ByUser,
}
