"""Clocks that tests hold in their hand."""


class CountingClock:
    """Each look at the clock finds it one later."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        self._now += 1.0
        return self._now


class HeldClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time
