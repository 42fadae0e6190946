"""How a step's time is told apart, by a clock that only the runner moves."""

import pytest

from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import RunnerFailed, RunnerFull
from chairlift.telemetry.stopwatch import Stopwatch
from fakes.clocks import HeldClock


class Slow:
    def __init__(self, clock: HeldClock, depth: int, prepare_s: float | None = None) -> None:
        self.depth = depth
        self._clock = clock
        self._prepare_s = prepare_s

    def submit(self, plan: StepPlan) -> None:
        self._clock.time += 3.0

    def collect(self) -> StepResult:
        self._clock.time += 5.0
        return StepResult(0, (), prepare_s=self._prepare_s)


@pytest.mark.parametrize(
    ("depth", "prepare_s", "expected"), [(1, None, (0.0, 8.0)), (1, 1.0, (1.0, 7.0)), (2, None, (3.0, 5.0))]
)
def test_submitting_is_preparing_unless_the_runner_computes_in_it(
    depth: int, prepare_s: float | None, expected: tuple[float, float]
) -> None:
    clock = HeldClock()
    stopwatch = Stopwatch(Slow(clock, depth, prepare_s), clock)
    plan = StepPlan(0, (), (), 0, 0)
    for _ in range(depth):
        stopwatch.submit(plan)
    for _ in range(depth):
        stopwatch.collect()
    assert (stopwatch.prepare_s, stopwatch.run_s) == tuple(depth * part for part in expected)


def test_overlapping_steps_are_busy_once_and_idle_time_is_not() -> None:
    clock = HeldClock()
    stopwatch = Stopwatch(Slow(clock, depth=2), clock)
    plan = StepPlan(0, (), (), 0, 0)
    clock.time += 10.0
    stopwatch.submit(plan)
    stopwatch.submit(plan)
    stopwatch.collect()
    clock.time += 2.0  # the other is still in flight
    assert stopwatch.busy_s == 3.0 + 3.0 + 5.0 + 2.0
    stopwatch.collect()
    clock.time += 100.0
    assert stopwatch.busy_s == 13.0 + 5.0
    stopwatch.submit(plan)
    assert stopwatch.busy_s == 18.0 + 3.0


class Ready(Slow):
    """Every step had ended before it was collected."""

    def collect(self) -> StepResult:
        return StepResult(0, (), was_ready=True)


def test_a_step_is_late_if_it_ended_before_the_next_was_submitted() -> None:
    clock, plan = HeldClock(), StepPlan(0, (), (), 0, 0)
    for runner, num_late in ((Ready(clock, depth=2), 2), (Slow(clock, depth=2), 0)):
        stopwatch = Stopwatch(runner, clock)
        stopwatch.submit(plan)
        for _ in range(2):
            stopwatch.submit(plan)
            stopwatch.collect()
        stopwatch.collect()  # there was no next
        assert stopwatch.num_late == num_late


class Failing(Slow):
    """Takes its time before it fails."""

    is_full = False

    def submit(self, plan: StepPlan) -> None:
        super().submit(plan)
        if self.is_full:
            raise RunnerFull

    def collect(self) -> StepResult:
        super().collect()
        raise RunnerFailed


def test_a_step_that_fails_is_in_flight_no_longer() -> None:
    clock = HeldClock()
    runner = Failing(clock, depth=2)
    stopwatch = Stopwatch(runner, clock)
    plan = StepPlan(0, (), (), 0, 0)
    stopwatch.submit(plan)
    runner.is_full = True
    with pytest.raises(RunnerFull):
        stopwatch.submit(plan)
    clock.time += 1.0  # the first is still in flight
    assert stopwatch.busy_s == 3.0 + 3.0 + 1.0
    with pytest.raises(RunnerFailed):
        stopwatch.collect()
    clock.time += 100.0
    assert stopwatch.busy_s == 7.0 + 5.0
    with pytest.raises(RunnerFull):
        stopwatch.submit(plan)
    clock.time += 100.0
    assert stopwatch.busy_s == 12.0 + 3.0
