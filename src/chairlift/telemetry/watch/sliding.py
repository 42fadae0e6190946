"""Percentiles over a sliding window.

Values fall into buckets that grow by a fortieth, so a percentile is right to a percent or so; adding a value costs the
same however many there are. Old values leave the window a turn at a time.
"""

import math
from collections import Counter, deque

SHARES = (0.5, 0.9, 0.99)
_GROWTH = math.log(1.025)


class Sliding:
    def __init__(self, num_turns: int) -> None:
        self._sum: Counter[int] = Counter()
        self._turns: deque[Counter[int]] = deque([Counter()])
        self._num_turns = num_turns

    def add(self, value: float, count: int = 1) -> None:
        bucket = round(math.log(max(value, 1e-7)) / _GROWTH)
        self._turns[-1][bucket] += count

    def turn(self) -> None:
        """Begins a turn; the oldest leaves the window."""
        self._sum.update(self._turns[-1])
        self._turns.append(Counter())
        if len(self._turns) > self._num_turns + 1:
            self._sum -= self._turns.popleft()  # drops buckets that are empty now

    def percentiles(self) -> tuple[float, ...] | None:
        """p50, p90 and p99 of the ended turns; None without values."""
        total = sum(self._sum.values())
        if not total:
            return None
        found: list[float] = []
        passed = 0
        for bucket, count in sorted(self._sum.items()):
            passed += count
            while len(found) < len(SHARES) and passed >= SHARES[len(found)] * total:
                found.append(float(f"{math.exp(bucket * _GROWTH):.3g}"))
        return tuple(found)
