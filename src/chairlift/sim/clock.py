"""A clock that stands still until it is advanced."""


class VirtualClock:
    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance_to(self, moment: float) -> None:
        """Never goes back."""
        self._now = max(self._now, moment)
