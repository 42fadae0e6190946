"""How a step's time is told apart, by a clock that only the runner moves."""

import pytest

from chairlift.core.plan import StepPlan, StepResult
from chairlift.telemetry.stopwatch import Stopwatch


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at


class Slow:
    def __init__(self, clock: Clock, depth: int, prepare_s: float | None = None) -> None:
        self.depth = depth
        self._clock = clock
        self._prepare_s = prepare_s

    def submit(self, plan: StepPlan) -> None:
        self._clock.at += 3.0

    def collect(self) -> StepResult:
        self._clock.at += 5.0
        return StepResult(0, (), prepare_s=self._prepare_s)


@pytest.mark.parametrize(
    ("depth", "prepare_s", "expected"), [(1, None, (0.0, 8.0)), (1, 1.0, (1.0, 7.0)), (2, None, (3.0, 5.0))]
)
def test_submitting_is_preparing_unless_the_runner_computes_in_it(
    depth: int, prepare_s: float | None, expected: tuple[float, float]
) -> None:
    clock = Clock()
    stopwatch = Stopwatch(Slow(clock, depth, prepare_s), clock)
    plan = StepPlan(0, (), (), 0, 0)
    for _ in range(depth):
        stopwatch.submit(plan)
    for _ in range(depth):
        stopwatch.collect()
    assert (stopwatch.prepare_s, stopwatch.run_s) == tuple(depth * part for part in expected)
