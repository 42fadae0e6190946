"""How long a process has been silent, by a number that it changes whenever it does something.

Time between two looks counts up to a second: when a terminal stops all processes, the watcher is stopped too.
"""

_MAX_GAP_S = 1.0  # between two looks of a running watcher


class Heartbeat:
    def __init__(self) -> None:
        self._beat: int | None = None
        self._looked = 0.0
        self._silent_s = 0.0

    def look(self, beat: int | None, now: float) -> float:
        """Seconds since `beat` was last seen to change; None: there is nothing to watch yet."""
        self._silent_s += min(now - self._looked, _MAX_GAP_S)
        if beat is None or beat != self._beat:
            self._silent_s = 0.0
        self._beat, self._looked = beat, now
        return self._silent_s
