"""All requests of a user to one replica, and few users to another one when a replica comes or goes.

Users are dealt by a ring: each replica has points on it, and a user belongs to the replica of the next point. Requests
without a user go to the least loaded replica.
"""

from bisect import bisect_left
from hashlib import blake2b

from chairlift.core.routing.replicas import Replicas
from chairlift.core.routing.router import Asked, Router


class ByUser(Router):
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
