"""Rate limits of API keys and adapters, for all front ends together: token buckets in a file that each of them maps.

Always: over any long time a key gets no more than its limit. A bucket holds at most a minute's worth and fills evenly.
Tokens are taken when they are known: those of a prompt when it is accepted, those of an answer as it ends, so a bucket
may be below zero for a while. Reading and taking happen under one lock. The slot of the key used longest ago is reused.

    per slot: digest of the name | requests left | tokens left | when they were counted last, seconds
"""

import hashlib
import struct
from pathlib import Path
from typing import Protocol

from chairlift.telemetry.mapped import LockedFile, make_mapped

NUM_SLOTS = 1024  # keys and adapters that can be used within a minute; beyond, the oldest is forgotten
_SLOT = struct.Struct("<8sddd")
_MINUTE = 60.0


class Limited(Protocol):
    """An API key or an adapter."""

    @property
    def label(self) -> str:
        """For those who are refused."""
        ...

    @property
    def bucket(self) -> str:
        """Its own name among all."""
        ...

    @property
    def requests_per_minute(self) -> float | None: ...

    @property
    def tokens_per_minute(self) -> float | None: ...


class RateLimits(LockedFile):
    def take(self, key: Limited, num_requests: int, num_tokens: int, now: float) -> float:
        """Takes requests and prompt tokens if both are left; seconds to wait if not, 0.0 if they were taken.

        `now` is of a clock that all processes share.
        """
        if not _has_limits(key):
            return 0.0
        with self.locked():
            slot, requests, tokens = self._left(key, now)
            wait = _wait(key, num_requests, requests, num_tokens, tokens)
            if not wait:
                requests, tokens = requests - num_requests, tokens - num_tokens
            self._put(slot, key, requests, tokens, now)
        return wait

    def look(self, key: Limited, now: float) -> float:
        """Seconds until there is something left to take, 0.0 if there is; takes nothing."""
        if not _has_limits(key):
            return 0.0
        with self.locked():
            _, requests, tokens = self._left(key, now)
        return _wait(key, 1, requests, 1, tokens)

    def charge(self, key: Limited, num_tokens: int, now: float, num_requests: int = 0) -> None:
        """Takes tokens that were made, and requests that were refused only after work."""
        if not _has_limits(key) or not (num_tokens or num_requests):
            return
        with self.locked():
            slot, requests, tokens = self._left(key, now)
            self._put(slot, key, requests - num_requests, tokens - num_tokens, now)

    def _left(self, key: Limited, now: float) -> tuple[int, float, float]:
        """The key's slot, and the requests and tokens it has left now."""
        name = _digest(key)
        oldest, oldest_at = 0, float("inf")
        for slot in range(0, len(self.memory), _SLOT.size):
            found, requests, tokens, at = _SLOT.unpack_from(self.memory, slot)
            if found == name:
                gone = max(0.0, now - at)
                requests = _filled(requests, key.requests_per_minute, gone)
                return slot, requests, _filled(tokens, key.tokens_per_minute, gone)
            if at < oldest_at:
                oldest, oldest_at = slot, at
            if not at:  # slots are taken in order: beyond the first empty one there are none
                break
        return oldest, key.requests_per_minute or 0.0, key.tokens_per_minute or 0.0

    def _put(self, slot: int, key: Limited, requests: float, tokens: float, now: float) -> None:
        _SLOT.pack_into(self.memory, slot, _digest(key), requests, tokens, now)


def make_rate_limits(path: Path) -> None:
    """An empty page; for the parent, before it starts other processes."""
    path.unlink(missing_ok=True)
    make_mapped(path, NUM_SLOTS * _SLOT.size)


def _has_limits(key: Limited) -> bool:
    return key.requests_per_minute is not None or key.tokens_per_minute is not None


def _wait(key: Limited, num_requests: int, requests: float, num_tokens: int, tokens: float) -> float:
    wait = _seconds_until(num_requests, requests, key.requests_per_minute)
    return max(wait, _seconds_until(num_tokens, tokens, key.tokens_per_minute))


def _seconds_until(num: int, left: float, per_minute: float | None) -> float:
    """A demand above a minute's worth waits for a full bucket."""
    if per_minute is None:
        return 0.0
    return max(0.0, min(num, per_minute) - left) * _MINUTE / per_minute


def _filled(left: float, per_minute: float | None, seconds: float) -> float:
    return 0.0 if per_minute is None else min(per_minute, left + seconds * per_minute / _MINUTE)


def _digest(key: Limited) -> bytes:
    return hashlib.blake2b(key.bucket.encode(), digest_size=8).digest()
