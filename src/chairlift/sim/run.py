"""One simulated run from settings, a profile and a workload: its report, and its trace on request."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.ports import Observer
from chairlift.sim.fleet.changes import NO_CHANGES, Changes, check
from chairlift.sim.profile import Profile
from chairlift.sim.setup import make_fleet, make_scheduler, rules_of
from chairlift.sim.simulate import simulate
from chairlift.telemetry.observers import Observers
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.report import Report, Slo
from chairlift.telemetry.timeline import Timeline
from chairlift.workload.arrivals import Arrivals
from chairlift.workload.item import Item
from chairlift.workload.requests import requests_of


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
        simulate(arriving, scheduler, profile.cost, observer, concurrency, profile.depth, watch, frontends=frontends)
    return timeline.report(slo)
