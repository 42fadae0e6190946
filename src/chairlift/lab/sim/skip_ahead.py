"""Steady decoding of one simulated engine, done as many steps at once (`core/scheduling/steady.py`).

Always: each step takes as long as the cost model says, and begins when the one before has ended; times are added up in
the order of the steps, so they are those of stepping to the last bit. Steps are found first and done later, as far as
they were planned before the moment in question: a request that arrives meanwhile is in the next step, as ever.

An engine with two plans in flight is stepped: when it plans depends on a forecast that learns from every step.
"""

from bisect import bisect_left
from itertools import accumulate, chain, repeat
from typing import Protocol, runtime_checkable

from chairlift.core.engine import Engine
from chairlift.core.ports import Observer
from chairlift.core.scheduling.steady import Skipped, Steady
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.runner import TOKEN, VirtualClock

_MOST = 128  # steps that are looked ahead


@runtime_checkable
class SkippedObserver(Observer, Protocol):
    """An observer that can be told of many steps at once."""

    def skipped(self, steps: Skipped) -> None: ...


class SkipAhead:
    def __init__(self, engine: Engine, clock: VirtualClock, cost: CostModel, observer: SkippedObserver) -> None:
        self._engine = engine
        self._clock = clock
        self._cost = cost
        self._observer = observer
        self._steady: Steady | None = None
        self._times: list[float] = []  # when the first step is planned, and the end of each

    @property
    def is_ahead(self) -> bool:
        """Whether steps were found that are not done yet."""
        return self._steady is not None

    @property
    def end(self) -> float:
        """Of the last step found."""
        return self._times[-1]

    def find(self, until: float) -> bool:
        """Looks for steady steps from now on, planned before `until`."""
        if self._engine.runner.depth > 1:
            return False
        steady = self._engine.scheduler.steady.find(TOKEN, _MOST)
        if steady is None or not self._clock.now() < min(until, steady.until):
            return False
        self._steady, self._times = steady, self._ends(steady, min(until, steady.until))
        return True

    def _ends(self, steady: Steady, until: float) -> list[float]:
        num_decodes, context, now = len(steady.decodes), steady.context, self._clock.now()
        start_s = self._cost.begin_s(num_decodes)
        fixed_s, context_s = self._cost.decode_rates(num_decodes)
        contexts = range(context, context + num_decodes * steady.num_steps, num_decodes)
        steps = [fixed_s + context_s * each for each in contexts]
        if start_s:  # it is added by itself, as where steps are made one by one
            steps = list(chain.from_iterable(zip(repeat(start_s), steps, strict=False)))
        times = list(accumulate(steps, initial=now))
        if start_s:
            del times[1::2]
        del times[bisect_left(times, until) + 1 :]
        return times

    def catch_up(self, before: float) -> None:
        """Does the steps that were planned before that moment, and forgets the others."""
        steady, times = self._steady, self._times
        if steady is None:
            return
        self._steady = None
        num_steps = min(bisect_left(times, before), len(times) - 1)
        if num_steps == 0:
            return
        del times[num_steps + 1 :]
        begin, *ends = times
        scheduler = self._engine.scheduler
        self._observer.skipped(scheduler.steady.carry_out(steady, TOKEN, begin, ends))
        self._clock.advance_to(ends[-1])
        if events := scheduler.take_events():
            self._engine.observer.happened(events)
