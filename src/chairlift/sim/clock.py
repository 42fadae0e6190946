"""Time that passes only when it is told to."""


class VirtualClock:
    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance_to(self, moment: float) -> None:
        """Never goes back: a moment that has passed changes nothing."""
        self._now = max(self._now, moment)
