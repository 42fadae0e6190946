"""What this front end has taken on, and whether it may take on more; the bounds are the whole server's.

Always: a request counts as waiting from when it is taken until its first token, in the page that all front ends share:
a bound holds whichever of them answers, and a refusal never waits for the engine. One that finds nobody waiting is
taken however large it is, for else it could never be served.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from chairlift.config.keys import ApiKey, ApiKeys
from chairlift.config.settings import Settings
from chairlift.live.shared_memory.counts import Count, Counts
from chairlift.live.shared_memory.rate_limits import RateLimits
from chairlift.live.shared_memory.service_rate import mark, rate
from chairlift.server.admission.rejected import Overloaded, Stopping, TooManyConnections

_MAX_RETRY_AFTER_S = 300
Demand = tuple[int, int]  # samples, and tokens of their prompt


class Load:
    def __init__(self, settings: Settings, counts: Counts, rates: RateLimits | None = None) -> None:
        self.settings = settings  # in force; replaced when they are read again
        self.keys = ApiKeys()  # likewise
        self.counts = counts
        self.is_draining = False
        self.on_drain: list[Callable[[], None]] = []  # called when it begins
        self.on_refused: Callable[[str], None] = _unheard  # told why a connection was refused or cut off
        self.has_heard = False  # of a token, since somebody demands last
        self.is_idle = asyncio.Event()  # no request that asks for work is under way
        self.is_idle.set()
        self.turn = asyncio.Lock()  # of large bodies
        self._rates = rates
        self._num_in_flight = 0
        self._open: dict[Reservation, None] = {}

    def check(self, key: ApiKey | None) -> None:
        """Refuses what there is no room for, and whoever has used up its allowance, before anything is done for it."""
        if key is not None and self._rates is not None:
            _refuse(key, self._rates.look(key, time.monotonic()))
        waiting, tokens = self._waiting()
        if waiting >= self.settings.max_waiting or tokens >= self.settings.max_waiting_tokens:
            raise self._full(waiting, tokens)

    def take(self, demands: Sequence[Demand]) -> "list[Reservation]":
        """A reservation for each prompt of a request, or none for any."""
        mark(self.counts, time.monotonic())
        num_samples, num_tokens = sum(n for n, _ in demands), sum(tokens for _, tokens in demands)
        with self.counts.locked():
            waiting, tokens = self._waiting()
            is_full = waiting > 0 and (
                waiting + num_samples > self.settings.max_waiting
                or tokens + num_tokens > self.settings.max_waiting_tokens
            )
            if not is_full:
                self.counts.add(Count.WAITING, num_samples)
                self.counts.add(Count.WAITING_TOKENS, num_tokens)
                self.counts.add(Count.OPEN, 1)
        if is_full:
            raise self._full(waiting, tokens)
        # They are left together, so one of them can stand for the request.
        reservations = [Reservation(self, *each, is_first=not index) for index, each in enumerate(demands)]
        self._open.update(dict.fromkeys(reservations))
        return reservations

    def spend(self, key: ApiKey | None, num_requests: int, num_tokens: int) -> None:
        """Of a key's allowance; raises `Overloaded`, and takes nothing, when that is used up."""
        if key is not None and self._rates is not None:
            _refuse(key, self._rates.take(key, num_requests, num_tokens, time.monotonic()))

    def charge(self, key: ApiKey | None, num_tokens: int, num_requests: int = 0) -> None:
        """Tokens that were made for it, and requests that were refused after work."""
        if key is not None and self._rates is not None:
            self._rates.charge(key, num_tokens, time.monotonic(), num_requests)

    def drain(self) -> None:
        """Nothing more is taken on; may be called again."""
        if not self.is_draining:
            self.is_draining = True
            for call in self.on_drain:
                call()

    def begin(self) -> None:
        """An HTTP request that asks for work has come; raises `Stopping`."""
        if self.is_draining:
            raise Stopping
        self._num_in_flight += 1
        self.is_idle.clear()

    def end(self) -> None:
        self._num_in_flight -= 1
        if not self._num_in_flight:
            self.is_idle.set()

    def connect(self, network: str) -> None:
        """One more connection from there; raises `TooManyConnections`."""
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
        """Lets all front ends know that the engine makes tokens; to be called every now and then."""
        if self.has_heard:
            self.has_heard = False
            self.counts.put(Count.HEARD_NS, time.monotonic_ns())

    def end_all(self) -> None:
        """Ends what is open without waiting for it; its clients are told."""
        for reservation in list(self._open):
            reservation.fail(Stopping())

    def leave(self, reservation: "Reservation") -> None:
        self._open.pop(reservation, None)

    def _waiting(self) -> tuple[int, int]:
        return self.counts.total(Count.WAITING), self.counts.total(Count.WAITING_TOKENS)

    def _full(self, waiting: int, tokens: int) -> Overloaded:
        """Says when all that wait now will have been served, going by the last while."""
        done = rate(self.counts, time.monotonic())
        expected_s = max(
            _until(waiting, done.num_requests, done.seconds), _until(tokens, done.num_tokens, done.seconds)
        )
        retry_after_s = min(_MAX_RETRY_AFTER_S, max(1, math.ceil(expected_s)))
        return Overloaded(f"{waiting} requests with {tokens} prompt tokens are waiting already", retry_after_s)


class Reservation:
    """One prompt's part of the load, until it is left."""

    __slots__ = ("_is_first", "_load", "_num_samples", "_num_tokens", "_waits", "fail")

    def __init__(self, load: Load, num_samples: int, num_tokens: int, *, is_first: bool) -> None:
        self.fail: Callable[[Exception], None] = _nobody
        self._load: Load | None = load
        self._is_first = is_first
        self._num_samples = num_samples
        self._num_tokens = num_tokens
        self._waits = True

    def begin(self) -> None:
        """Its first token is there."""
        if self._waits and self._load is not None:
            self._waits = False
            self._load.counts.add(Count.WAITING, -self._num_samples)
            self._load.counts.add(Count.WAITING_TOKENS, -self._num_tokens)

    def leave(self) -> None:
        """It has ended, however; may be called again."""
        load = self._load
        if load is None:
            return
        was_served = not self._waits
        self.begin()
        load.counts.add(Count.OPEN, -int(self._is_first))
        if was_served:
            load.counts.add(Count.FINISHED, self._num_samples)
            load.counts.add(Count.FINISHED_TOKENS, self._num_tokens)
            mark(load.counts, time.monotonic())
        load.leave(self)
        self._load = None
        self.fail = _nobody  # whoever it was knows this reservation too


def _unheard(reason: str) -> None:
    """Where nobody counts."""


def _nobody(error: Exception) -> None:
    """Who is told when nobody has begun, or everybody has left."""


def _until(num_waiting: int, num_done: int, seconds: float) -> float:
    """How long so many take at the pace of the last while; that while, when nothing was done in it."""
    return seconds * num_waiting / num_done if num_done > 0 else seconds


def _refuse(key: ApiKey, wait_s: float) -> None:
    """Unless there is nothing to wait for."""
    if wait_s:
        limit = f"the limit of this API key is reached, {_limit(key)}"
        raise Overloaded(limit, min(_MAX_RETRY_AFTER_S, math.ceil(wait_s)))


def _limit(key: ApiKey) -> str:
    limits = {"requests": key.requests_per_minute, "tokens": key.tokens_per_minute}
    return " and ".join(f"{number:,.12g} {what}" for what, number in limits.items() if number is not None) + " a minute"
