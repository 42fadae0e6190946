import random

import pytest

from chairlift.core.late_planning import AT_ONCE, LatePlanning
from chairlift.core.plan import Chunk, StepPlan
from fakes.requests import make_request

REQUEST = make_request(1, [1])
PLAN = StepPlan(1, (Chunk(REQUEST, 100, 1, [1], 1, ((),), 0, (REQUEST,)),), (), 1, 1)
PROMPTS = StepPlan(2, (Chunk(REQUEST, 0, 1, [1], 1, ((),), 0, (REQUEST,)),), (), 1, 0)
HOST_S = 0.001


class Device:
    """Runs steps one after the other, planned at the moment or at once; the host takes a millisecond for each."""

    def __init__(self, planning: LatePlanning) -> None:
        self.planning = planning
        self.now = self.ready = 0.0
        self.num_late = 0
        self._submit(0.0, 0.0)

    def run(self, num_steps: int, draw_s: float | random.Random, noise: float = 0.0) -> None:
        for _ in range(num_steps):
            step_s = draw_s if isinstance(draw_s, float) else draw_s.gauss(0.02, noise)
            end, planned = self.ready, max(self.now, self.planning.moment(False))
            self._submit(planned, step_s)
            was_ready, self.now = end < self.now, max(end, self.now)
            self.num_late += was_ready
            self.planning.ended(was_ready, self.now)

    def _submit(self, planned: float, step_s: float) -> None:
        self.now = planned + HOST_S
        self.planning.submitted(PLAN, planned, self.now)
        self.ready = max(self.ready, self.now) + step_s


def test_a_step_that_is_not_known_is_not_waited_for() -> None:
    planning = LatePlanning()
    assert planning.moment(False) == AT_ONCE
    planning.submitted(PLAN, 0.0, HOST_S)
    assert planning.moment(False) == AT_ONCE


def test_the_next_step_is_planned_shortly_before_the_end_with_time_for_the_host() -> None:
    device = Device(LatePlanning())
    device.run(1000, 0.020)
    wait_s = device.planning.moment(False) - device.now  # a step has just begun
    assert 0.016 < wait_s < 0.020 - HOST_S
    assert device.num_late == 1  # the first: it took no time


def test_short_steps_are_not_waited_for() -> None:
    device = Device(LatePlanning())
    device.run(100, 0.0025)
    assert device.planning.moment(False) == AT_ONCE


def test_a_host_as_slow_as_the_device_does_not_wait() -> None:
    planning = LatePlanning()
    for start in range(50):  # 20 ms of planning for steps of 20 ms
        planning.submitted(PLAN, 0.02 * start, 0.02 * (start + 1))
        if start:
            planning.ended(was_ready=True, now=0.02 * (start + 1))
    assert planning.moment(False) == AT_ONCE


@pytest.mark.parametrize("noise", [0.0005, 0.002])
def test_few_steps_are_late_however_they_scatter(noise: float) -> None:
    device = Device(LatePlanning())
    device.run(500, random.Random(1), noise)
    before = device.num_late
    device.run(5000, random.Random(2), noise)
    assert 0 < device.num_late - before < 0.02 * 5000
    assert device.planning.moment(False) - device.now > 0.010  # it waits for more than half of a step all the same


@pytest.mark.parametrize("num_late", [8, 60])  # after so many nothing waits any more
def test_late_steps_widen_the_margin_and_others_narrow_it(num_late: int) -> None:
    device = Device(LatePlanning())
    device.run(300, 0.020)
    waits = [device.planning.moment(False) - device.now]
    for _ in range(num_late):  # the host is interrupted after the moment
        device.now = device.ready + 0.001
        device.run(1, 0.020)
    device.run(1, 0.020)
    waits.append(device.planning.moment(False) - device.now)
    device.run(3000, 0.020)
    waits.append(device.planning.moment(False) - device.now)
    assert waits[1] < waits[0] <= waits[2]


def test_a_failed_step_teaches_nothing() -> None:
    device = Device(LatePlanning())
    device.run(100, 0.020)
    wait_s = device.planning.moment(False) - device.now
    device._submit(device.now, 0.020)
    device.planning.failed(device.now)  # long before its time
    assert device.planning.moment(False) - device.now == pytest.approx(wait_s)
    device.planning.failed(device.now)
    assert device.planning.moment(False) == AT_ONCE


def test_a_step_with_prompts_is_planned_sooner() -> None:
    device = Device(LatePlanning())
    device.run(300, 0.020)
    planning = device.planning
    assert planning.moment(True) == planning.moment(False)  # until one was seen
    planning.submitted(PROMPTS, device.now, device.now + 5 * HOST_S)
    planning.ended(was_ready=False, now=device.now + 0.020)
    planning.submitted(PLAN, device.now + 0.030, device.now + 0.030 + HOST_S)
    planning.ended(was_ready=False, now=device.now + 0.040)
    assert planning.moment(True) == pytest.approx(planning.moment(False) - 4 * HOST_S)


@pytest.mark.parametrize(
    ("expected", "plan", "is_judged"),
    [(False, PLAN, True), (False, PROMPTS, False), (True, PROMPTS, True), (True, PLAN, True)],
)
def test_a_late_step_counts_unless_its_prompts_came_unexpected(expected: bool, plan: StepPlan, is_judged: bool) -> None:
    device = Device(LatePlanning())
    device.run(300, 0.020)
    device.planning.expect(expected)
    planned, margin = device.planning.moment(expected), device.planning._margin
    device.planning.submitted(plan, planned, planned + 5 * HOST_S)
    device.planning.ended(was_ready=True, now=planned + 5 * HOST_S)
    assert (device.planning._margin > margin) is is_judged
