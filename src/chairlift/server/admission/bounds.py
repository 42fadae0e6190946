"""The work that this front end has accepted, and whether it accepts more; the bounds are the whole server's.

Always: a request counts as waiting from its admission until its first token, in memory that all front ends share, so a
bound holds whichever of them answers and a refusal never waits for the engine. An empty queue accepts a request of any
size; otherwise large ones could never run. A full one accepts requests of a key that waits for less than its share, of
any size too: what others have queued closes it to none.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from chairlift.config.keys import ApiKey, ApiKeys
from chairlift.config.settings import Settings
from chairlift.live.shared_memory.counts import Count, Counts
from chairlift.live.shared_memory.rate_limits import Limited, RateLimits
from chairlift.live.shared_memory.service_rate import mark, rate
from chairlift.models.adapters.limits import AdapterLimit, AdapterLimits
from chairlift.server.admission.rejected import Overloaded, Stopping, TooManyConnections

_MAX_RETRY_AFTER_S = 300
_OUTCOMES = {"finished": Count.ANSWERED, "failed": Count.FAILED, "aborted": Count.ABORTED, "refused": Count.REJECTED}
Demand = tuple[int, int]  # samples, and tokens of their prompt


class Load:
    def __init__(self, settings: Settings, counts: Counts, rates: RateLimits | None = None) -> None:
        self.settings = settings  # in force; replaced when they are read again
        self.keys = ApiKeys()  # likewise
        self.adapters = AdapterLimits()  # likewise
        self.counts = counts
        self.is_draining = False
        self.on_drain: list[Callable[[], None]] = []
        self.on_refused: Callable[[str], None] = lambda reason: None  # a connection was refused or cut off
        self.has_heard = False  # of a token, since `note_tokens`
        self.is_idle = asyncio.Event()  # no request that asks for work is in flight
        self.is_idle.set()
        self.turn = asyncio.Lock()  # of pieces of large bodies
        self._rates = rates
        self._num_in_flight = 0
        self.open: dict[Reservation, None] = {}

    def check(self, key: ApiKey | None) -> None:
        """Raises `Overloaded` when the queue is full or the key's allowance is used up."""
        if key is not None and self._rates is not None:
            wait_s = self._rates.look(key, time.monotonic())
            if wait_s:
                raise _used_up(key, wait_s)
        waiting, tokens = self._waiting()
        is_full = waiting >= self.settings.max_waiting or tokens >= self.settings.max_waiting_tokens
        if is_full and not self._is_below_share(key):
            raise self._full(waiting, tokens)

    def take(
        self, demands: Sequence[Demand], limit: AdapterLimit | None = None, key: ApiKey | None = None
    ) -> "list[Reservation]":
        """Reserves for all prompts of a request, or raises `Overloaded` and reserves nothing. `limit`: of its
        adapter."""
        mark(self.counts, time.monotonic())
        num_samples, num_tokens = (sum(column) for column in zip(*demands, strict=True))
        with self.counts.locked():
            self._check_room(key, num_samples, num_tokens)
            bucket = self._take_places(limit, num_samples)
            self.counts.add(Count.OPEN, 1)
            self.add_waiting(key, num_samples, num_tokens)
        # They end together, so the first stands for the request.
        reservations = [Reservation(self, *each, not index, bucket, key) for index, each in enumerate(demands)]
        self.open.update(dict.fromkeys(reservations))
        return reservations

    def add_waiting(self, key: ApiKey | None, num_samples: int, num_tokens: int) -> None:
        self.counts.add(Count.WAITING, num_samples)
        self.counts.add(Count.WAITING_TOKENS, num_tokens)
        for bucket, amount in zip(_waiting_of(key), (num_samples, num_tokens), strict=True) if key is not None else ():
            self.counts.add_from(bucket, amount)

    def _check_room(self, key: ApiKey | None, num_samples: int, num_tokens: int) -> None:
        """Raises `Overloaded` where so much more may not wait."""
        settings = self.settings
        waiting, tokens = self._waiting()
        is_over = waiting + num_samples > settings.max_waiting or tokens + num_tokens > settings.max_waiting_tokens
        if waiting and is_over and not self._is_below_share(key):
            raise self._full(waiting, tokens)

    def _is_below_share(self, key: ApiKey | None) -> bool:
        """Whether a key waits for less than its part of what may wait, by the weights of all keys."""
        if key is None:
            return False
        share = key.weight / max(key.weight, sum(each.weight for each in self.keys))
        own = [self.counts.total_from(bucket) for bucket in _waiting_of(key)]
        most = (self.settings.max_waiting, self.settings.max_waiting_tokens)
        return all(number < share * limit for number, limit in zip(own, most, strict=True))

    def _take_places(self, limit: AdapterLimit | None, num_samples: int) -> str:
        """What they are counted under, "" where they are not; raises `Overloaded` where the adapter has no place."""
        if limit is None or limit.max_requests is None:
            return ""
        num_open = self.counts.total_from(limit.bucket)
        if num_open and num_open + num_samples > limit.max_requests:
            raise Overloaded(f"the limit of {limit.label} is reached, {limit.max_requests} requests at once", 1)
        self.counts.add_from(limit.bucket, num_samples)
        return limit.bucket

    def spend(self, payers: Sequence[Limited], num_requests: int, num_tokens: int) -> None:
        """From the allowances of a key and an adapter; raises `Overloaded` when one is used up, and takes nothing but a
        request from the key that asked for too much."""
        if self._rates is None:
            return
        for index, payer in enumerate(payers):
            wait_s = self._rates.take(payer, num_requests, num_tokens, time.monotonic())
            if wait_s:
                self.charge(payers[:index], -num_tokens, -num_requests)
                self.charge([payer] if isinstance(payer, ApiKey) else [], 0, num_requests=1)
                raise _used_up(payer, wait_s)

    def charge(self, payers: Sequence[Limited], num_tokens: int, num_requests: int = 0) -> None:
        """For generated tokens, and for requests refused after work was done."""
        if self._rates is None:
            return
        for payer in payers:
            self._rates.charge(payer, num_tokens, time.monotonic(), num_requests)

    def drain(self) -> None:
        """Accepts no more work; may be called again."""
        if not self.is_draining:
            self.is_draining = True
            for call in self.on_drain:
                call()

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """Counts an HTTP request that asks for work; raises `Stopping`."""
        if self.is_draining:
            raise Stopping
        self._num_in_flight += 1
        self.is_idle.clear()
        try:
            yield
        finally:
            self._num_in_flight -= 1
            if not self._num_in_flight:
                self.is_idle.set()

    def connect(self, network: str) -> None:
        """Counts a connection from `network`; raises `TooManyConnections`."""
        settings = self.settings
        with self.counts.locked():
            if self.counts.total(Count.CONNECTIONS) >= settings.max_connections:
                raise TooManyConnections(503, f"there are {settings.max_connections} connections already")
            if self.counts.total_from(network) >= settings.connections_per_address:
                limit = f"there are {settings.connections_per_address} connections from {network} already"
                raise TooManyConnections(429, f"{limit} (--max-connections-per-address)")
            self.counts.add(Count.CONNECTIONS, 1)
            self.counts.add_from(network, 1)

    def disconnect(self, network: str) -> None:
        self.counts.add(Count.CONNECTIONS, -1)
        self.counts.add_from(network, -1)

    @property
    def is_complete(self) -> bool:
        """Whether every front end has had an engine."""
        return self.counts.least(Count.HAS_BEGUN) > 0

    def note_tokens(self) -> None:
        """Tells all front ends that the engine makes tokens; called periodically."""
        if self.has_heard:
            self.has_heard = False
            self.counts.put(Count.HEARD_NS, time.monotonic_ns())

    def note_end(self, outcome: str, reason: str) -> None:
        """Counts a request that asked an engine."""
        self.counts.add(Count.OVERLOADED if reason == "429" else _OUTCOMES[outcome], 1)

    def end_all(self) -> None:
        """Ends open requests at once; their clients are told."""
        for reservation in list(self.open):
            reservation.fail(Stopping())

    def _waiting(self) -> tuple[int, int]:
        return self.counts.total(Count.WAITING), self.counts.total(Count.WAITING_TOKENS)

    def _full(self, waiting: int, tokens: int) -> Overloaded:
        """Estimates when the current queue will have been served, by the recent rate."""
        done = rate(self.counts, time.monotonic())
        shares = ((waiting, done.num_requests), (tokens, done.num_tokens))
        expected_s = max(done.seconds * queued / served if served > 0 else done.seconds for queued, served in shares)
        retry_after_s = min(_MAX_RETRY_AFTER_S, max(1, math.ceil(expected_s)))
        return Overloaded(f"{waiting} requests with {tokens} prompt tokens are waiting already", retry_after_s)


def _ignore(error: Exception) -> None:
    """Before a request has begun and after it has ended."""


@dataclass(slots=True, eq=False)
class Reservation:
    """One prompt's part of the load, until `leave`."""

    _load: Load | None
    _num_samples: int
    _num_tokens: int
    _is_first: bool
    _bucket: str = ""  # that its adapter's places are counted under
    _key: ApiKey | None = None
    _waits: bool = True
    fail: Callable[[Exception], None] = _ignore

    def begin(self) -> None:
        """The first token has come."""
        if self._waits and self._load is not None:
            self._waits = False
            self._load.add_waiting(self._key, -self._num_samples, -self._num_tokens)

    def leave(self) -> None:
        """The request has ended; may be called again."""
        load = self._load
        if load is None:
            return
        was_served = not self._waits
        self.begin()
        load.counts.add(Count.OPEN, -int(self._is_first))
        if self._bucket:
            load.counts.add_from(self._bucket, -self._num_samples)
        if was_served:
            load.counts.add(Count.FINISHED, self._num_samples)
            load.counts.add(Count.FINISHED_TOKENS, self._num_tokens)
            mark(load.counts, time.monotonic())
        load.open.pop(self, None)
        self._load = None
        self.fail = _ignore  # breaks a reference cycle


def _waiting_of(key: ApiKey) -> tuple[str, str]:
    """What its waiting samples and the tokens of their prompts are counted under."""
    return f"waiting {key.bucket}", f"waiting tokens {key.bucket}"


def _used_up(payer: Limited, wait_s: float) -> Overloaded:
    limits = {"requests": payer.requests_per_minute, "tokens": payer.tokens_per_minute}
    limit = " and ".join(f"{number:,.12g} {what}" for what, number in limits.items() if number is not None)
    message = f"the limit of {payer.label} is reached, {limit} a minute"
    return Overloaded(message, min(_MAX_RETRY_AFTER_S, math.ceil(wait_s)))
