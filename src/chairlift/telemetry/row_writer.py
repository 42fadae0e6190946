"""Writes rows of logits to a folder from a thread of its own.

Always: `put` returns at once. Rows that the disk has no room or no time for are dropped and counted in a warning, and
later ones are tried again. A file has its final name once it is whole, and is in the index after that.
"""

import atexit
import logging
import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from chairlift.telemetry import logit_files
from chairlift.telemetry.logit_files import Logits, Name

_MAX_WAITING = 256 << 20  # bytes of rows that are not written yet
_WARN_S = 10.0  # between warnings
_CLOSE_S = 4.0  # to write what waits at the end
_log = logging.getLogger(__name__)


class SavedRow(NamedTuple):
    request: int  # its index
    name: Name
    prefix: str  # digest of the tokens up to its position
    row: Logits


class RowWriter:
    def __init__(self, folder: Path, max_waiting: int = _MAX_WAITING) -> None:
        """Raises `OSError` if the folder cannot be made."""
        self._folder, self._max_waiting = folder, max_waiting
        logit_files.make_folder(folder)
        self._waiting: deque[SavedRow] = deque()
        self._num_bytes = 0  # that wait
        self._changed = threading.Condition()
        self._is_closing = False
        self._dropped, self._why, self._warned = 0, "", -_WARN_S
        self._thread = threading.Thread(target=self._run, name="save-logits", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, row: SavedRow) -> None:
        with self._changed:
            if self._num_bytes + row.row.nbytes > self._max_waiting:
                self._drop(1, "the disk is slower than the engine")
                return
            self._num_bytes += row.row.nbytes
            self._waiting.append(row)
            self._changed.notify()

    def lost(self, count: int) -> None:
        """Counts rows that an engine before this one has not written."""
        with self._changed:
            self._drop(count, "the engine ended before they were written")

    def close(self) -> None:
        """Writes what waits, for some seconds at most."""
        atexit.unregister(self.close)
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(_CLOSE_S)
        with self._changed:
            if self._waiting:
                self._drop(len(self._waiting), "the server stopped before they were written")
                self._waiting.clear()
            self._warn()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._is_closing:
                        return
                    self._changed.wait(_WARN_S if self._dropped else None)
                    self._warn_in_time()
                row = self._waiting[0]
            why = self._write(row)
            with self._changed:
                if self._waiting:
                    self._waiting.popleft()
                self._num_bytes -= row.row.nbytes
                if why:
                    self._drop(1, why)

    def _write(self, row: SavedRow) -> str:
        """Why it could not be written; empty: it was."""
        path = logit_files.path_of(self._folder, row.request, row.name)
        try:
            logit_files.write(path, row.row)
            logit_files.add_to_index(self._folder, path.name, row.prefix)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _drop(self, count: int, why: str) -> None:
        self._dropped, self._why = self._dropped + count, why
        self._warn_in_time()

    def _warn_in_time(self) -> None:
        if time.monotonic() - self._warned >= _WARN_S:
            self._warn()

    def _warn(self) -> None:
        if self._dropped:
            _log.warning("%d rows of logits were dropped: %s: %s", self._dropped, self._folder, self._why)
            self._dropped, self._warned = 0, time.monotonic()
