"""How many replicas there should be, from the load of those there are.

    wanted = load of all / target        rounded up; what there is where that is within a tenth
    more     once wanted has been above what there is for `up` seconds: the least of them
    fewer    once it has been below for `down` seconds: the most of them

So a short peak starts nothing, and a short lull ends nothing. Loads are those that routing compares, in tokens
(`replicas.py`): the queue, and a share for each running request. Knows no clock, and starts and ends nothing itself:
the simulator asks it, and so may whatever places live replicas.
"""

import math
from collections import deque

_TOLERANCE = 0.1


class Scaling:
    def __init__(self, least: int, most: int, target: float = 2048.0, up: float = 10.0, down: float = 120.0) -> None:
        """`target`: the load of one replica, in tokens; `up`, `down`: seconds."""
        if not 1 <= least <= most:
            raise ValueError("the least number of replicas must be at least 1, and the most no smaller")
        if target <= 0 or up < 0 or down < 0:
            raise ValueError("target must be above 0, up and down not below 0")
        self.least = least
        self.most = most
        self._target = target
        self._up_s = up
        self._down_s = down
        self._wanted: deque[tuple[float, int]] = deque()  # (time, replicas)

    def want(self, load: float, count: int, now: float) -> int:
        """`load`: of all replicas together. `count`: how many there are, with those that start and without those that
        leave. To be asked every second or so."""
        if not self._wanted:
            self._wanted.append((now, count))  # as if this had been wanted so far
        self._wanted.append((now, self._wanted_now(load / self._target, count)))
        while len(self._wanted) > 1 and self._wanted[1][0] <= now - max(self._up_s, self._down_s):
            self._wanted.popleft()
        floor, ceiling = min(self._since(now - self._up_s)), max(self._since(now - self._down_s))
        wanted = floor if floor > count else min(count, ceiling)
        return max(self.least, min(self.most, wanted))

    def _wanted_now(self, exact: float, count: int) -> int:
        return count if abs(exact - count) <= _TOLERANCE * count else math.ceil(exact)

    def _since(self, moment: float) -> list[int]:
        """What was wanted from that moment on, and just before it."""
        found: list[int] = []
        for time, wanted in reversed(self._wanted):
            found.append(wanted)
            if time <= moment:
                break
        return found
