"""Feeds requests to an engine as they arrive and steps it until all have ended; on any clock that can be waited on.

Always: a request enters between two steps and counts from its arrival, even if that was during a step. Holds only live
requests.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from chairlift.core.engine import Engine
from chairlift.core.ports import Clock
from chairlift.core.request import Request

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
) -> None:
    """`watch` gets the time after each step. `concurrency`: 0, or a closed loop of so many live requests, whatever the
    arrivals. `delay`: between an arrival and when the engine sees it, in an open loop."""
    live, feed = engine.scheduler.live, iter(arriving)
    following = next(feed, None)
    while following is not None or engine.has_work:
        while following is not None and (
            len(live) < concurrency if concurrency else _seen(following, delay) <= clock.now()
        ):
            arrive(engine, (following[1],), clock.now() if concurrency else following[0])
            following = next(feed, None)
        if engine.has_work:
            engine.step()
            if watch is not None:
                watch(clock.now())
        elif following is not None:
            clock.advance_to(_seen(following, delay))


def _seen(arriving: tuple[float, Request], delay: Delay) -> float:
    return arriving[0] + delay(arriving[1])


def arrive(engine: Engine, samples: tuple[Request, ...], arrival: float) -> None:
    """Adds a prompt that arrived at that moment, perhaps during the last step."""
    engine.scheduler.add(samples, arrival)
    engine.observer.added(samples, arrival)
