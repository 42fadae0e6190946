"""Log lines on their way out: a thread writes them, so that a log which nothing reads keeps no request waiting.

Always: lines come out whole and in order. Lines beyond `MAX_BYTES` of waiting ones, and those that cannot be written,
are dropped and counted; a line says how many once the log takes lines again. Knows nothing of their format.
"""

import os
import select
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

MAX_BYTES = 2**20  # of lines that wait; a longer line waits alone
_FLUSH_S = 1.0


class LogQueue:
    def __init__(self, write: Callable[[bytes], None], dropped: Callable[[int], str]) -> None:
        """`write` may block or raise `OSError`. `dropped`: the line that tells of so many lines."""
        self._write, self._dropped = write, dropped
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._lock = threading.RLock()  # a signal's handler may log too
        self._num_put = self._num_taken = 0  # bytes
        self._num_failed = self._num_refused = self._num_told = 0  # lines
        threading.Thread(target=self._run, name="log", daemon=True).start()

    @property
    def num_dropped(self) -> int:
        return self._num_failed + self._num_refused

    def put(self, line: str) -> None:
        data = f"{line}\n".encode(errors="backslashreplace")
        with self._lock:
            if 0 < self._num_waiting > MAX_BYTES - len(data):
                self._num_refused += 1
                return
            self._num_put += len(data)
        self._lines.put(data)

    def flush(self) -> None:
        """Waits until all is written, for a second at most."""
        deadline = time.monotonic() + _FLUSH_S
        while self._num_waiting and time.monotonic() < deadline:
            time.sleep(0.001)

    @property
    def _num_waiting(self) -> int:
        return self._num_put - self._num_taken

    def _run(self) -> None:
        while True:
            data = self._lines.get()
            if not self._is_written(data):
                self._num_failed += 1
            self._num_taken += len(data)
            if self._num_told < self.num_dropped and self._num_waiting <= MAX_BYTES // 2:
                self._tell()

    def _tell(self) -> None:
        num_dropped = self.num_dropped
        if self._is_written(f"{self._dropped(num_dropped - self._num_told)}\n".encode()):
            self._num_told = num_dropped

    def _is_written(self, data: bytes) -> bool:
        try:
            self._write(data)
        except OSError:  # a full disk, say
            return False
        return True


def write_whole(file: int, data: bytes) -> None:
    """To a descriptor that may not block."""
    while data:
        try:
            data = data[os.write(file, data) :]
        except BlockingIOError:
            select.select([], [file], [])
