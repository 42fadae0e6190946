"""How much of its allowance each API key has left, for all front ends together: a file mapped by each of them.

Always: a key that has used up its minute is told when to come back, and over any long time gets no more than its limit.
A bucket holds at most a minute's worth and fills evenly. Tokens are taken when they are known: those of a prompt when
it is taken on, those of an answer as it ends, so a bucket may be below zero for a while. Looking and taking are one,
under a lock that the kernel takes back from a holder that dies. Keys may come and go; what one that has gone had left
is forgotten when its slot is needed.

    per slot: digest of the name | requests left | tokens left | when they were counted last, seconds
"""

import fcntl
import hashlib
import mmap
import os
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chairlift.config.keys import ApiKey
from chairlift.telemetry.mapped import make_mapped

NUM_SLOTS = 1024  # keys that can be used within a minute; more than that share none, the oldest is forgotten
_SLOT = struct.Struct("<8sddd")
_MINUTE = 60.0


class RateLimits:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self._page = mmap.mmap(self._file, 0)

    def take(self, key: ApiKey, num_requests: int, num_tokens: int, now: float) -> float:
        """Takes requests and prompt tokens if both are left; seconds to wait if not, 0.0 if they were taken.

        `now` is of a clock that all processes share.
        """
        if not _has_limits(key):
            return 0.0
        with self._locked():
            slot, requests, tokens = self._left(key, now)
            wait = max(
                _seconds_until(num_requests, requests, key.requests_per_minute),
                _seconds_until(num_tokens, tokens, key.tokens_per_minute),
            )
            if not wait:
                requests, tokens = requests - num_requests, tokens - num_tokens
            self._put(slot, key, requests, tokens, now)
        return wait

    def look(self, key: ApiKey, now: float) -> float:
        """Seconds until there is something left to take, 0.0 if there is; takes nothing."""
        if not _has_limits(key):
            return 0.0
        with self._locked():
            _, requests, tokens = self._left(key, now)
        return max(
            _seconds_until(1, requests, key.requests_per_minute), _seconds_until(1, tokens, key.tokens_per_minute)
        )

    def charge(self, key: ApiKey, num_tokens: int, now: float, num_requests: int = 0) -> None:
        """Tokens that have been made, and requests that were refused only after work."""
        if not _has_limits(key) or not (num_tokens or num_requests):
            return
        with self._locked():
            slot, requests, tokens = self._left(key, now)
            self._put(slot, key, requests - num_requests, tokens - num_tokens, now)

    def _left(self, key: ApiKey, now: float) -> tuple[int, float, float]:
        """The key's slot, and what it has left in it by now."""
        name = _digest(key)
        oldest, oldest_at = 0, float("inf")
        for slot in range(0, len(self._page), _SLOT.size):
            found, requests, tokens, at = _SLOT.unpack_from(self._page, slot)
            if found == name:
                gone = max(0.0, now - at)
                return (
                    slot,
                    _filled(requests, key.requests_per_minute, gone),
                    _filled(tokens, key.tokens_per_minute, gone),
                )
            if at < oldest_at:
                oldest, oldest_at = slot, at
            if not at:  # rooms are taken in order: beyond the first empty one there is nobody
                break
        return oldest, key.requests_per_minute or 0.0, key.tokens_per_minute or 0.0

    def _put(self, slot: int, key: ApiKey, requests: float, tokens: float, now: float) -> None:
        _SLOT.pack_into(self._page, slot, _digest(key), requests, tokens, now)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def make_rate_limits(path: Path) -> None:
    """An empty page; for the parent, before it starts anybody."""
    path.unlink(missing_ok=True)
    make_mapped(path, NUM_SLOTS * _SLOT.size)


def _has_limits(key: ApiKey) -> bool:
    return key.requests_per_minute is not None or key.tokens_per_minute is not None


def _seconds_until(num: int, left: float, per_minute: float | None) -> float:
    """More than a minute's worth is to be had when a minute's worth is left."""
    if per_minute is None:
        return 0.0
    return max(0.0, min(num, per_minute) - left) * _MINUTE / per_minute


def _filled(left: float, per_minute: float | None, seconds: float) -> float:
    return 0.0 if per_minute is None else min(per_minute, left + seconds * per_minute / _MINUTE)


def _digest(key: ApiKey) -> bytes:
    return hashlib.blake2b(key.name.encode(), digest_size=8).digest()
