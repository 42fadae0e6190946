"""Which evaluation is best, and which are on the front.

Throughput counts where the machine sets the pace, latency where the arrivals do. With targets, an evaluation that
misses one ranks behind all that meet them. Among evaluations within half a percent the other figure decides.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from chairlift.lab.tune.evaluate import Evaluation, Point
from chairlift.telemetry.report import Report

TOLERANCE = 0.005
_ARRIVAL_BOUND = 1.1  # a run that ends within so many times the last arrival does not lag behind


@dataclass(frozen=True, slots=True)
class Goal:
    is_throughput: bool
    has_targets: bool

    def meets(self, evaluation: Evaluation) -> bool:
        return evaluation.is_whole and (not self.has_targets or evaluation.point.latency <= 1.0)

    def costs(self, point: Point) -> tuple[float, float]:
        """The figure that counts, then the other; small is good, and relative differences count."""
        time_s = 1.0 / point.throughput if point.throughput > 0 else math.inf
        return (time_s, point.latency) if self.is_throughput else (point.latency, time_s)

    def cost(self, point: Point) -> float:
        return self.costs(point)[0]

    def other(self, point: Point) -> float:
        return self.costs(point)[1]

    def gain(self, point: Point, other: Point) -> float:
        """By what part it is better than the other: 0.1 is ten percent more throughput, or as much less latency."""
        cost = self.cost(point)
        return self.cost(other) / cost - 1.0 if cost > 0 else 0.0

    def best(self, evaluations: Iterable[Evaluation]) -> Evaluation | None:
        """None if no run was whole. If none meets the targets, the one that comes nearest."""
        whole = [each for each in evaluations if each.is_whole]
        meeting = [each for each in whole if self.meets(each)]
        if not meeting:
            return min(whole, key=lambda each: each.point.latency, default=None)
        least = min(self.cost(each.point) for each in meeting)
        near = [each for each in meeting if self.cost(each.point) <= least * (1.0 + TOLERANCE)]
        return min(near, key=lambda each: self.other(each.point))

    def ranked(self, evaluations: Iterable[Evaluation]) -> list[Evaluation]:
        """Whole runs, those that meet the targets first, the best first."""
        whole = [each for each in evaluations if each.is_whole]
        return sorted(whole, key=lambda each: (not self.meets(each), *self.costs(each.point)))


def goal_of(default: Report, last_arrival_s: float, has_targets: bool) -> Goal:
    """From a run with the default settings; last_arrival_s is 0 in a closed loop."""
    is_bound = last_arrival_s > 0 and default.total_s <= _ARRIVAL_BOUND * last_arrival_s
    return Goal(not is_bound, has_targets)


def front(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """The Pareto front: whole runs than which no other is better at both, in order of latency."""
    whole = [each for each in evaluations if each.is_whole]
    found: list[Evaluation] = []
    for each in sorted(whole, key=lambda each: (each.point.latency, -each.point.throughput)):
        if not found or each.point.throughput > found[-1].point.throughput:
            found.append(each)
    return found
