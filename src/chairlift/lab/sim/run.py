"""A workload's run: on a virtual clock or on a real runner in real time."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidConfig
from chairlift.core.ports import Observer, Runner
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.drive import drive
from chairlift.lab.sim.fleet.changes import NO_CHANGES, Changes, check
from chairlift.lab.sim.frontends import Arriving, Frontends
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.runner import SimDrafts, SimRunner, VirtualClock
from chairlift.lab.sim.setup import make_fleet, rules_of
from chairlift.lab.sim.skip_ahead import SkipAhead, SkippedObserver
from chairlift.lab.workload.arrivals import Arrivals
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.requests import requests_of
from chairlift.telemetry.observers import Observers
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.report import Report, Slo
from chairlift.telemetry.timeline import Timeline


def simulate(
    arriving: Arriving,
    scheduler: Scheduler,
    cost: CostModel,
    observer: Observer,
    concurrency: int = 0,
    depth: int = 1,
    watch: Callable[[float], None] | None = None,
    drafts: SimDrafts | None = None,
    frontends: Frontends | None = None,
) -> None:
    """Runs until every request has ended. An observer with a method `skipped` is told of many steps at once where that
    is the same; any other of each step. `drafts`: the scheduler's drafter, if any. `frontends`: what is before the
    engine, in an open loop."""
    clock = VirtualClock()
    runner = SimRunner(cost, scheduler.limits.block_size, clock, depth, drafts)
    engine = Engine(scheduler, runner, clock, observer)
    ahead = SkipAhead(engine, clock, cost, observer) if isinstance(observer, SkippedObserver) else None
    drive(engine, clock, arriving, concurrency, watch, frontends, ahead)


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


def run(
    settings: Settings,
    profile: Profile,
    items: Iterable[Item],
    arrivals: Arrivals,
    seed: int = 0,
    slo: Slo | None = None,
    trace: Path | None = None,
    watch: Callable[[float], None] | None = None,
    changes: Changes | None = None,
) -> Report:
    """`items` are read once, as they arrive; `watch` gets the simulated time after each step, or after many at once.
    `changes`: what happens to replicas meanwhile."""
    limits = profile.limits(settings)
    if settings.replicas > 1 or changes is not None:
        if trace is not None:
            raise InvalidConfig("trace: a file has the steps of one engine; leave --trace or --replicas out")
        changes = changes or NO_CHANGES
        check(changes, settings.replicas, settings.roles)
        fleet = make_fleet(settings, profile, limits, seed, changes)
        arriving = requests_of(arrivals.apply(items, seed), limits, seed)
        fleet.run(arriving, arrivals.concurrency, watch, profile.make_frontends(seed))
        return fleet.timeline.report(slo, tuple(fleet.routing.failures), fleet.replica_s)
    rules = rules_of(settings, profile, limits)
    scheduler = make_scheduler(limits, rules)
    concurrency = arrivals.concurrency
    frontends = None if concurrency else profile.make_frontends(seed)
    delay_s = None if frontends is None else frontends.delay_s
    timeline = Timeline(scheduler.pool, delay_s)
    arriving = requests_of(arrivals.apply(items, seed), limits, seed)
    with ExitStack() as files:
        observer: Observer = timeline
        if trace is not None:
            recorder = Recorder(trace, scheduler, rules, profile.model, "virtual", profile.depth, delay_s)
            observer = Observers(timeline, files.enter_context(closing(recorder)))
        cost = profile.cost.of_slots(limits.max_running)
        simulate(arriving, scheduler, cost, observer, concurrency, profile.depth, watch, frontends=frontends)
    return timeline.report(slo)
