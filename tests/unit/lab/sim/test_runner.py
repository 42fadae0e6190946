import random

from chairlift.core.plan import Chunk, StepPlan
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.runner import SimDrafts, SimRunner, VirtualClock
from fakes.requests import make_request

SECOND = CostModel(linear=((1, 1.0), (2, 2.0)))


def plan(step: int, num_rows: int = 1) -> StepPlan:
    request = make_request(1, [1])
    return StepPlan(step, (Chunk(request, 0, num_rows, [1], 1, ((),), 0, (request,)),), (), num_rows, 1)


def test_time_passes_when_a_step_is_collected() -> None:
    clock = VirtualClock()
    runner = SimRunner(SECOND, 4, clock)
    runner.submit(plan(1, num_rows=2))
    assert clock.now() == 0.0
    assert runner.collect().step == 1
    assert clock.now() == 2.0


def test_steps_in_flight_are_done_one_after_the_other() -> None:
    clock = VirtualClock()
    runner = SimRunner(SECOND, 4, clock, depth=2)
    runner.submit(plan(1))
    runner.submit(plan(2))
    assert [runner.collect().step, clock.now()] == [1, 1.0]
    runner.submit(plan(3))
    assert [runner.collect().step, clock.now()] == [2, 2.0]
    assert [runner.collect().step, clock.now()] == [3, 3.0]


def test_a_device_that_was_idle_starts_at_once() -> None:
    clock = VirtualClock()
    runner = SimRunner(SECOND, 4, clock)
    clock.advance_to(10.0)
    runner.submit(plan(1))
    runner.collect()
    assert clock.now() == 11.0


def test_there_is_a_token_for_every_sample() -> None:
    runner = SimRunner(SECOND, 4, VirtualClock())
    runner.submit(plan(1))
    assert len(runner.collect().tokens) == 1


def test_drafts_are_right_as_often_as_told_up_to_the_first_that_is_not() -> None:
    request = make_request(1, [1])
    chunk = Chunk(request, 0, 5, [1], 1, ((),), 0, (request,), (0,) * 4)
    counts = []
    for acceptance in (0.0, 0.5, 1.0):
        runner = SimRunner(SECOND, 4, VirtualClock(), drafts=SimDrafts(acceptance, random.Random(1)))
        for step in range(400):
            runner.submit(StepPlan(step, (chunk,), (), 5, 0, num_drafting=1))
        results = [runner.collect() for _ in range(400)]
        assert all(len(result.tokens) == 1 for result in results)
        counts.append(sum(len(result.more.get(request.id, ())) for result in results) / 400)
    assert (counts[0], counts[2]) == (0.0, 4.0)
    assert abs(counts[1] - (0.5 + 0.25 + 0.125 + 0.0625)) < 0.15


def test_the_clock_never_goes_back() -> None:
    clock = VirtualClock()
    clock.advance_to(3.0)
    clock.advance_to(1.0)
    assert clock.now() == 3.0


def test_an_idle_device_waits_for_the_host_and_a_busy_one_does_not() -> None:
    clock = VirtualClock()
    runner = SimRunner(CostModel(linear=((1, 1.0),), start_s=0.25), 4, clock, depth=2)
    runner.submit(plan(1))
    runner.submit(plan(2))
    assert [runner.collect().step, clock.now()] == [1, 1.25]
    assert [runner.collect().step, clock.now()] == [2, 2.25]
    runner.submit(plan(3))
    assert [runner.collect().step, clock.now()] == [3, 3.5]
    assert CostModel(linear=((1, 1.0),), start_s=0.25, start_row_s=0.5).begin_s(4) == 2.25


def test_a_result_says_whether_the_step_had_ended_before() -> None:
    clock = VirtualClock()
    runner = SimRunner(CostModel(linear=((1, 1.0),), start_s=0.25), 4, clock, depth=2)
    runner.submit(plan(1))  # until 1.25
    clock.advance_to(1.1)
    runner.submit(plan(2))  # begins at 1.35, as the host is late
    assert [runner.collect().was_ready, clock.now()] == [True, 1.35]
    runner.submit(plan(3))
    assert [runner.collect().was_ready, clock.now()] == [False, 2.35]
