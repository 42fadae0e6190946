"""Numbers that all processes of a server share: one page of memory, a row for each front end.

Always: a row is written by the front end it belongs to, and by the parent once that one is gone. A number has eight
bytes and is read and written whole, so a sum may be a moment old but never torn. What has to be looked at and changed
as one is done under the lock, which the kernel takes back from a holder that dies.

    num_rows | secret | row 0 | row 1 | ... | the marks (see service.py)

    a row: one number for each of Count | connections by address

Connections are counted by address in a count-min sketch: an address has two slots by a hash that only this server
knows, other addresses may share one of them, and the lesser of the two is the answer: never too low, and too high for
one pair of addresses in millions.
"""

import fcntl
import hashlib
import mmap
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from chairlift.telemetry.mapped import make_mapped

_WIDTH = 8
NUM_MARKS = 32
MARK_WIDTH = 3
_NUM_SLOTS = 4096  # in each half of the sketch
_SECRET_WIDTH = 2  # numbers, before the first row


class Count(IntEnum):
    WAITING = 0  # samples that were taken on and have no token yet
    WAITING_TOKENS = 1  # of their prompts
    OPEN = 2  # requests that were taken on and have not ended, each once whatever it asks for
    CONNECTIONS = 3  # open ones
    FINISHED = 4  # samples that have ended, since the start
    FINISHED_TOKENS = 5  # of their prompts
    HEARD_NS = 6  # when this front end last heard of tokens, by the machine's monotonic clock
    HAS_BEGUN = 7  # 1 once there has been an engine for this front end, or for one whose place it took
    BODY_BYTES = 8  # of large bodies that are being read or made into tokens


_ROW_WIDTH = len(Count) + 2 * _NUM_SLOTS
# What a front end has open, which ends with it; the others only grow.
_PASSING = (Count.WAITING, Count.WAITING_TOKENS, Count.OPEN, Count.CONNECTIONS, Count.BODY_BYTES)


class Counts:
    """The page as one process sees it; `row` is its own."""

    def __init__(self, path: Path, row: int = 0) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self._numbers = memoryview(mmap.mmap(self._file, 0)).cast("q")
        self._num_rows = self._numbers[0]
        self._own = _start(row)
        self._secret = bytes(self._numbers[1 : 1 + _SECRET_WIDTH])
        assert 0 <= row < self._num_rows

    @property
    def marks(self) -> memoryview:
        """Room for what is measured over time; only to be written under the lock."""
        return self._numbers[_start(self._num_rows) :]

    def add(self, count: Count, amount: int) -> None:
        self._numbers[self._own + count] += amount

    def put(self, count: Count, value: int) -> None:
        self._numbers[self._own + count] = value

    def total(self, count: Count) -> int:
        return sum(self._of_all(count))

    def latest(self, count: Count) -> int:
        return max(self._of_all(count))

    def least(self, count: Count) -> int:
        return min(self._of_all(count))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else is in here. For some microseconds at most: whoever comes next waits without doing anything."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def clear(self, row: int) -> int:
        """The front end of this row is gone, and with it what it had open: how many requests those were."""
        with self.locked():
            num_open = self._numbers[_start(row) + Count.OPEN]
            for count in (*_PASSING, *range(len(Count), _ROW_WIDTH)):
                self._numbers[_start(row) + count] = 0
        return num_open

    def add_from(self, address: str, amount: int) -> None:
        """Connections of an address; under the lock where the total was looked at before."""
        for slot in self._slots(address):
            self._numbers[self._own + slot] += amount

    def total_from(self, address: str) -> int:
        return min(sum(self._of_all(slot)) for slot in self._slots(address))

    def _slots(self, address: str) -> tuple[int, int]:
        digest = hashlib.blake2b(address.encode(), key=self._secret, digest_size=8).digest()
        first, second = (int.from_bytes(half) % _NUM_SLOTS for half in (digest[:4], digest[4:]))
        return len(Count) + first, len(Count) + _NUM_SLOTS + second

    def _of_all(self, count: int) -> list[int]:
        numbers = self._numbers
        return [numbers[_start(row) + count] for row in range(self._num_rows)]


def make_counts(path: Path, num_rows: int) -> Counts:
    """A page of zeros; for the parent, before it starts anybody."""
    size = (_start(num_rows) + 1 + NUM_MARKS * MARK_WIDTH) * _WIDTH
    path.unlink(missing_ok=True)
    make_mapped(path, size)
    with path.open("r+b") as file:
        file.write(num_rows.to_bytes(_WIDTH, sys.byteorder) + os.urandom(_SECRET_WIDTH * _WIDTH))
    return Counts(path)


def _start(row: int) -> int:
    return 1 + _SECRET_WIDTH + row * _ROW_WIDTH
