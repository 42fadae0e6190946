"""Numbers that all processes of a server share: one page of memory, a row for each front end.

Always: only its front end writes a row, and the parent once that one is gone. A number has eight bytes and is read and
written whole, so a sum may be a moment old but never torn. Read-and-change needs the lock.

    num_rows | secret | row 0 | row 1 | ... | the marks (service_rate.py)

    a row: one number for each of Count | connections by address, requests by adapter, and waiting ones by key

These are counted in a count-min sketch: an address, adapter or key has two slots by a keyed hash, others may share one
of them, and the count is the lesser of the two: never too low, and too high for one pair in millions.
"""

import hashlib
import os
import sys
from enum import IntEnum
from functools import lru_cache, partial
from pathlib import Path

from chairlift.telemetry.mapped import LockedFile, make_mapped

_WIDTH = 8
NUM_MARKS = 32
MARK_WIDTH = 3
_NUM_SLOTS = 4096  # in each half of the sketch
_SECRET_WIDTH = 2  # numbers, before the first row


class Count(IntEnum):
    WAITING = 0  # accepted samples without a token yet
    WAITING_TOKENS = 1  # of their prompts
    OPEN = 2  # accepted requests that have not ended, each once however many samples it has
    CONNECTIONS = 3  # open ones
    FINISHED = 4  # samples that have ended, since the start
    FINISHED_TOKENS = 5  # of their prompts
    HEARD_NS = 6  # when this front end last heard of tokens, by the machine's monotonic clock
    HAS_BEGUN = 7  # 1 once there has been an engine for this front end, or for one it replaced
    BODY_BYTES = 8  # of large bodies being read or tokenized
    # HTTP requests that asked an engine, by how they ended, since the start.
    ANSWERED = 9
    FAILED = 10
    ABORTED = 11  # by the client, or when told to stop
    OVERLOADED = 12  # refused with 429
    REJECTED = 13  # refused otherwise
    BEAT_NS = 14  # when this front end's event loop last turned, by the machine's monotonic clock


_ROW_WIDTH = len(Count) + 2 * _NUM_SLOTS
# What ends with a front end; the others only grow.
_PASSING = (Count.WAITING, Count.WAITING_TOKENS, Count.OPEN, Count.CONNECTIONS, Count.BODY_BYTES)


class Counts(LockedFile):
    """The page as one process sees it; `row` is its own."""

    def __init__(self, path: Path, row: int = 0) -> None:
        super().__init__(path)
        self._numbers = memoryview(self.memory).cast("q")
        self._num_rows = self._numbers[0]
        self._own = _start(row)
        self._slots = lru_cache(_NUM_SLOTS)(partial(_slots, bytes(self._numbers[1 : 1 + _SECRET_WIDTH])))
        assert 0 <= row < self._num_rows

    @property
    def num_rows(self) -> int:
        """One for each front end."""
        return self._num_rows

    @property
    def marks(self) -> memoryview:
        """Space for the service rate; written only under the lock."""
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

    def beat_of(self, row: int) -> int:
        """Changes while that front end's event loop turns."""
        return self._numbers[_start(row) + Count.BEAT_NS]

    def clear(self, row: int) -> int:
        """Clears what a dead front end had open; returns how many requests those were."""
        with self.locked():
            num_open = self._numbers[_start(row) + Count.OPEN]
            for count in (*_PASSING, *range(len(Count), _ROW_WIDTH)):
                self._numbers[_start(row) + count] = 0
        return num_open

    def add_from(self, address: str, amount: int) -> None:
        """Counts what an address, an adapter or a key has; under the lock if the total was read before."""
        for slot in self._slots(address):
            self._numbers[self._own + slot] += amount

    def total_from(self, address: str) -> int:
        return min(sum(self._of_all(slot)) for slot in self._slots(address))

    def _of_all(self, count: int) -> list[int]:
        numbers = self._numbers
        return [numbers[_start(row) + count] for row in range(self._num_rows)]


def make_counts(path: Path, num_rows: int) -> Counts:
    """A page of zeros; for the parent, before it starts other processes."""
    size = (_start(num_rows) + 1 + NUM_MARKS * MARK_WIDTH) * _WIDTH
    path.unlink(missing_ok=True)
    make_mapped(path, size)
    with path.open("r+b") as file:
        file.write(num_rows.to_bytes(_WIDTH, sys.byteorder) + os.urandom(_SECRET_WIDTH * _WIDTH))
    return Counts(path)


def _slots(secret: bytes, address: str) -> tuple[int, int]:
    digest = hashlib.blake2b(address.encode(), key=secret, digest_size=8).digest()
    first, second = (int.from_bytes(half) % _NUM_SLOTS for half in (digest[:4], digest[4:]))
    return len(Count) + first, len(Count) + _NUM_SLOTS + second


def _start(row: int) -> int:
    return 1 + _SECRET_WIDTH + row * _ROW_WIDTH
