"""Feeds requests to an engine as they arrive and steps it until all have ended; on any clock that can be waited on.

Always: a request enters before a step is planned and counts from its arrival, even if that was during a step. Holds
only live requests.
"""

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from chairlift.core.engine import Engine
from chairlift.core.ports import Clock
from chairlift.core.request import Request
from chairlift.sim.skip_ahead import SkipAhead

Arriving = Iterable[tuple[float, Request]]  # in order of arrival
Delay = Callable[[Request], float]  # seconds


def at_once(request: Request) -> float:
    return 0.0


class WaitingClock(Clock, Protocol):
    def advance_to(self, moment: float) -> None:
        """Returns at that moment."""
        ...


def drive(
    engine: Engine,
    clock: WaitingClock,
    arriving: Arriving,
    concurrency: int = 0,
    watch: Callable[[float], None] | None = None,
    delay: Delay = at_once,
    ahead: SkipAhead | None = None,
) -> None:
    """`watch` gets the time after each step, or after many at once. `concurrency`: 0, or a closed loop of so many live
    requests, whatever the arrivals. `delay`: between an arrival and when the engine sees it, in an open loop. `ahead`:
    does many steps at once where it can."""
    feed = _Feed(engine, clock, arriving, concurrency, delay)
    while feed.has_more or engine.has_work:
        feed.add_arrived()
        if ahead is not None and ahead.find(feed.next_at):
            ahead.catch_up(math.inf)
            if watch is not None:
                watch(clock.now())
        elif engine.has_work:
            engine.begin()
            while clock.now() < engine.plan_at:
                clock.advance_to(min(engine.plan_at, feed.next_at))
                feed.add_arrived()
            engine.step()
            if watch is not None:
                watch(clock.now())
        else:
            clock.advance_to(feed.next_at)


class _Feed:
    """Requests that are still to be added."""

    def __init__(self, engine: Engine, clock: WaitingClock, arriving: Arriving, concurrency: int, delay: Delay) -> None:
        self._engine = engine
        self._clock = clock
        self._arriving = iter(arriving)
        self._concurrency = concurrency
        self._delay = delay
        self._take()

    @property
    def has_more(self) -> bool:
        return self._following is not None

    def add_arrived(self) -> None:
        live, concurrency = self._engine.scheduler.live, self._concurrency
        while self._following is not None and (
            len(live) < concurrency if concurrency else self.next_at <= self._clock.now()
        ):
            arrival, request = self._following
            arrive(self._engine, (request,), self._clock.now() if concurrency else arrival)
            self._take()

    def _take(self) -> None:
        self._following = next(self._arriving, None)
        self.next_at = float("inf")  # when the engine sees it; in a closed loop no moment is known
        if self._following is not None and not self._concurrency:
            arrival, request = self._following
            self.next_at = arrival + self._delay(request)


def arrive(engine: Engine, samples: tuple[Request, ...], arrival: float) -> None:
    """Adds a prompt that arrived at that moment, perhaps during the last step."""
    engine.scheduler.add(samples, arrival)
    engine.observer.added(samples, arrival)
