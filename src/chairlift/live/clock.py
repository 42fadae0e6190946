"""Time as it passes."""

import time


class WallClock:
    def now(self) -> float:
        return time.monotonic()
