"""Evaluates a choice: simulates the workload under it, here or in worker processes.

Always: the same choice, work and rivals give the same evaluation. A run is given up as soon as a rival is certain to be
better at both throughput and latency; its figures are then upper bounds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.request import Request
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import simulate
from chairlift.lab.sim.setup import make_fleet, rules_of
from chairlift.lab.tune.knobs import Choice, with_choice
from chairlift.lab.tune.targets import Targets
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.requests import requests_of
from chairlift.telemetry.report import Report
from chairlift.telemetry.timeline import Timeline

_LOOK_EVERY = 32  # steps


class Point(NamedTuple):
    throughput: float  # output tokens a second
    latency: float  # mean seconds from arrival to last token; with targets the part of the tightest limit that is used


@dataclass(frozen=True, slots=True)
class Evaluation:
    choice: Choice
    point: Point
    report: Report | None = None  # None: the run was given up, or could not be made
    failure: str = ""  # why it could not be made

    @property
    def is_whole(self) -> bool:
        return self.report is not None


@dataclass(frozen=True, slots=True)
class Work:
    """What every choice is tried on. Can be pickled."""

    settings: Settings
    profiles: Mapping[int, Profile]  # by number of threads; one under 0 where there is no choice
    items: tuple[Item, ...]
    arrivals: str
    seed: int = 0
    targets: Targets | None = None

    def first(self, count: int) -> "Work":
        return replace(self, items=self.items[:count])

    def profile(self, choice: Choice) -> Profile:
        return self.profiles[int(choice.get("threads", next(iter(self.profiles))))]


class Evaluator:
    """Holds the requests of the workload, the same for every choice."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._arrivals = parse_arrivals(work.arrivals)
        profile = next(iter(work.profiles.values()))
        items = self._arrivals.apply(work.items, work.seed)
        self._arriving = list(requests_of(items, profile.limits(work.settings), work.seed))
        self._num_output = sum(request.max_output for _, request in self._arriving)
        self._longest = max(len(request.prompt) + request.max_output for _, request in self._arriving)

    def evaluate(self, choice: Choice, rivals: Sequence[Point] = ()) -> Evaluation:
        work = self.work
        profile = work.profile(choice)
        try:
            settings = with_choice(work.settings, choice)
            limits = profile.limits(settings)
            if self._longest > min(limits.max_model_len, limits.max_pool_tokens + 1):
                raise InvalidConfig(f"a request of {self._longest} tokens does not fit")
        except InvalidConfig as error:
            return Evaluation(choice, Point(0.0, math.inf), failure=str(error))
        scheduler = make_scheduler(limits, rules_of(settings, profile, limits))
        timeline = Timeline(scheduler.pool if settings.replicas == 1 else None)
        watch = None if work.targets else _watch(timeline, self._arriving, self._num_output, rivals)
        concurrency = self._arrivals.concurrency
        try:
            if settings.replicas == 1:
                cost = profile.cost.of_slots(limits.max_running)
                simulate(self._arriving, scheduler, cost, timeline, concurrency, profile.depth, watch)
            else:
                fleet = make_fleet(settings, profile, limits, work.seed, timeline=timeline)
                fleet.run(self._arriving, concurrency, watch)
        except _Dominated as error:
            return Evaluation(choice, error.args[0])
        report = timeline.report()
        return Evaluation(choice, point_of(report, work.targets), report)


def point_of(report: Report, targets: Targets | None) -> Point:
    return Point(report.output_tokens_per_s, report.e2e_s.mean if targets is None else targets.used(report))


class _Dominated(Exception):
    """A rival is certain to be better; its argument is the bound on the run's point."""


def _watch(
    timeline: Timeline, arriving: Sequence[tuple[float, Request]], num_output: int, rivals: Sequence[Point]
) -> Callable[[float], None]:
    """Raises `_Dominated` once a rival is certain to be better at both figures."""
    started, steps = arriving[0][0], count(1)

    def watch(now: float) -> None:
        if next(steps) % _LOOK_EVERY or now <= started:
            return
        # The run ends no sooner than now, and no live request has ended.
        most = num_output / (now - started)
        least = timeline.latency_so_far_s(now) / len(arriving)
        if any(rival.throughput > most and rival.latency < least for rival in rivals):
            raise _Dominated(Point(most, least))

    return watch
