"""A workload on a real runner in real time, with the report of a simulated run."""

import time
from collections.abc import Sequence

from chairlift.core.engine import Engine
from chairlift.core.ports import Runner
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.sim.drive import drive
from chairlift.telemetry.report import Report
from chairlift.telemetry.timeline import Timeline
from chairlift.workload.arrivals import Arrivals
from chairlift.workload.item import Item
from chairlift.workload.requests import requests_of


class SleepingClock:
    """Seconds since its creation; can be waited on."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._start

    def advance_to(self, moment: float) -> None:
        time.sleep(max(0.0, moment - self.now()))


def run_live(runner: Runner, scheduler: Scheduler, items: Sequence[Item], arrivals: Arrivals, seed: int = 0) -> Report:
    """Prompts are made beforehand: that is not part of serving."""
    arriving = list(requests_of(arrivals.apply(items, seed), scheduler.limits, seed))
    timeline, clock = Timeline(scheduler.pool), SleepingClock()
    drive(Engine(scheduler, runner, clock, timeline), clock, arriving, arrivals.concurrency)
    return timeline.report()
