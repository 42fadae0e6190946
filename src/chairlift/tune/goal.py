"""Which outcome is best, and which are worth looking at.

Where the machine sets the pace, throughput counts; where the arrivals do, whatever the settings, latency. Where there
are targets, an outcome that misses one is behind every outcome that meets all. Differences below half a percent are
none: among such outcomes the other figure decides.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from chairlift.telemetry.report import Report
from chairlift.tune.evaluate import Evaluation, Point

TOLERANCE = 0.005
_ARRIVAL_BOUND = 1.1  # a run that ends within so many times the last arrival does not lag behind


@dataclass(frozen=True, slots=True)
class Goal:
    is_throughput: bool
    has_targets: bool

    def meets(self, evaluation: Evaluation) -> bool:
        return evaluation.is_whole and (not self.has_targets or evaluation.point.latency <= 1.0)

    def cost(self, point: Point) -> float:
        """What is to be small; relative differences count."""
        if not self.is_throughput:
            return point.latency
        return 1.0 / point.throughput if point.throughput > 0 else math.inf

    def gain(self, point: Point, other: Point) -> float:
        """By what part it is better than the other: 0.1 is ten percent more throughput, or as much less latency."""
        cost = self.cost(point)
        return self.cost(other) / cost - 1.0 if cost > 0 else 0.0

    def best(self, evaluations: Iterable[Evaluation]) -> Evaluation | None:
        """None if no run was whole. If none meets the targets, the one that comes nearest."""
        whole = [evaluation for evaluation in evaluations if evaluation.is_whole]
        meeting = [evaluation for evaluation in whole if self.meets(evaluation)]
        if not whole:
            return None
        if not meeting:
            return min(whole, key=lambda evaluation: evaluation.point.latency)
        least = min(self.cost(evaluation.point) for evaluation in meeting)
        near = [evaluation for evaluation in meeting if self.cost(evaluation.point) <= least * (1.0 + TOLERANCE)]
        return min(near, key=lambda evaluation: self.other(evaluation.point))

    def ranked(self, evaluations: Iterable[Evaluation]) -> list[Evaluation]:
        """Whole runs, those that meet the targets first, the best first."""
        whole = [evaluation for evaluation in evaluations if evaluation.is_whole]
        return sorted(whole, key=lambda each: (not self.meets(each), self.cost(each.point), self.other(each.point)))

    def other(self, point: Point) -> float:
        """The figure that does not count, as a cost too."""
        if self.is_throughput:
            return point.latency
        return 1.0 / point.throughput if point.throughput > 0 else math.inf


def goal_of(default: Report, last_arrival_s: float, is_closed: bool, has_targets: bool) -> Goal:
    """From how the default settings fare."""
    is_bound = not is_closed and last_arrival_s > 0 and default.total_s <= _ARRIVAL_BOUND * last_arrival_s
    return Goal(not is_bound, has_targets)


def front(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Whole runs than which no other is better at both, in order of latency."""
    whole = sorted(
        (evaluation for evaluation in evaluations if evaluation.is_whole),
        key=lambda evaluation: (evaluation.point.latency, -evaluation.point.throughput),
    )
    found: list[Evaluation] = []
    for evaluation in whole:
        if not found or evaluation.point.throughput > found[-1].point.throughput:
            found.append(evaluation)
    return found
