"""How long a process has shown no sign of life, by a number that it changes whenever it does something.

Time in which nobody looked does not count: when a terminal stops all processes, whoever watches is stopped too.
"""

_MAX_GAP_S = 1.0  # between two looks of a watcher that runs


class Heartbeat:
    def __init__(self) -> None:
        self._beat: int | None = None
        self._looked = 0.0
        self._silent_s = 0.0

    def look(self, beat: int | None, now: float) -> float:
        """Seconds since it was last seen to change; None: there is nothing to watch yet."""
        self._silent_s += min(now - self._looked, _MAX_GAP_S)
        if beat is None or beat != self._beat:
            self._silent_s = 0.0
        self._beat, self._looked = beat, now
        return self._silent_s
