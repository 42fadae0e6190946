"""How long a process has been silent, by a number that it changes whenever it does something.

Time between two looks counts up to a second: when a terminal stops all processes, the watcher is stopped too.

Locks among the processes of a server. The kernel takes one back from a process that dies.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """The descriptor of the file, which is locked meanwhile."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
