"""What processes of their own do to the shared pages; here, where a new process can find it by name."""

import time
from pathlib import Path

from chairlift.config.keys import ApiKey
from chairlift.live.shared_memory.counts import Count, Counts
from chairlift.live.shared_memory.rate_limits import RateLimits
from fakes.patience import HANG_S


def take_while_below(path: Path, row: int, limit: int) -> None:
    counts = Counts(path, row)
    for _ in range(2000):
        with counts.locked():
            if counts.total(Count.WAITING) < limit:
                counts.add(Count.WAITING, 1)


def hold(path: Path) -> None:
    with Counts(path, 1).locked():
        (path.parent / "held").touch()
        time.sleep(2 * HANG_S)


def take_many(page: Path, key: ApiKey, count: int) -> int:
    found = RateLimits(page)
    return sum(found.take(key, 1, 0, 100.0) == 0.0 for _ in range(count))
