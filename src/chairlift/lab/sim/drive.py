"""Feeds requests to an engine as they arrive and steps it until all have ended; on any clock that can be waited on.

Always: a request enters before a step is planned and counts from when the engine sees it, even if that was during a
step. Holds only live requests, and those that have arrived and are not seen yet.
"""

import math
from collections.abc import Callable
from typing import Protocol

from chairlift.core.engine import Engine
from chairlift.core.ports import Clock
from chairlift.core.request import Request
from chairlift.lab.sim.frontends import Arriving, Frontends
from chairlift.lab.sim.skip_ahead import SkipAhead
from chairlift.lab.workload.requests import samples_of


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
    frontends: Frontends | None = None,
    ahead: SkipAhead | None = None,
) -> None:
    """`watch` gets the time after each step, or after many at once. `concurrency`: 0, or a closed loop of so many live
    requests, whatever the arrivals. `frontends`: what is before the engine, in an open loop; None: nothing. `ahead`:
    does many steps at once where it can."""
    feed = _Feed(engine, clock, arriving, concurrency, frontends)
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

    def __init__(
        self, engine: Engine, clock: WaitingClock, arriving: Arriving, concurrency: int, frontends: Frontends | None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._seen = (Frontends() if frontends is None or concurrency else frontends).seen(arriving)
        self._concurrency = concurrency
        self._following = next(self._seen, None)

    @property
    def has_more(self) -> bool:
        return self._following is not None

    @property
    def next_at(self) -> float:
        """When the engine sees the next one; in a closed loop no moment is known."""
        return math.inf if self._following is None or self._concurrency else self._following.at

    def add_arrived(self) -> None:
        live, concurrency = self._engine.scheduler.live, self._concurrency
        while self._following is not None and (
            len(live) < concurrency if concurrency else self.next_at <= self._clock.now()
        ):
            seen_at = self._clock.now() if concurrency else self._following.at
            arrive(self._engine, samples_of(self._following.request), seen_at)
            self._following = next(self._seen, None)


def arrive(engine: Engine, samples: tuple[Request, ...], seen_at: float) -> None:
    """Adds a prompt that came at that moment, perhaps during the last step."""
    engine.scheduler.add(samples, seen_at)
    engine.observer.added(samples, seen_at)
