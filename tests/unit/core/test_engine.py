"""When the engine plans: late with a runner that takes two plans, at once with any other."""

from dataclasses import replace

import pytest

from chairlift.core.engine import Engine
from chairlift.core.ids import RequestId
from chairlift.core.late_planning import AT_ONCE
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import RunnerFailed, RunnerFull
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.runner import SimRunner, VirtualClock
from fakes.clocks import CountingClock
from fakes.engines import PlansAtOnce
from fakes.ledger import LedgerRunner
from fakes.requests import make_request

LIMITS = Limits(vocab_size=50, max_model_len=512, block_size=4, num_blocks=512, max_running=8, max_step_tokens=64)
TENTH = CostModel(linear=((1, 0.1),))  # every step takes so long


class Noting(SimRunner):
    """Keeps the requests of each step."""

    def __init__(self, clock: VirtualClock, depth: int = 2, cost: CostModel = TENTH) -> None:
        super().__init__(cost, LIMITS.block_size, clock, depth)
        self.steps: list[list[int]] = []

    def submit(self, plan: StepPlan) -> None:
        super().submit(plan)
        self.steps.append([chunk.request.id for chunk in plan.chunks])


def decoding(
    kind: type[Engine] = Engine, depth: int = 2, cost: CostModel = TENTH
) -> tuple[Engine, Noting, VirtualClock]:
    """An engine that has made many steps of one request; the first in flight has just begun."""
    clock = VirtualClock()
    runner = Noting(clock, depth, cost)
    engine = kind(Scheduler(LIMITS, Fcfs()), runner, clock)
    engine.add((make_request(1, [1, 2], 400),))
    for _ in range(60):
        engine.step()
    return engine, runner, clock


def test_a_request_that_arrives_while_a_step_runs_is_in_the_next() -> None:
    engine, runner, clock = decoding()
    in_flight = len(runner.steps)
    assert clock.now() + 0.07 < engine.plan_at < clock.now() + 0.1
    clock.advance_to(engine.plan_at)
    engine.add((make_request(2, [3], 4),))
    engine.step()
    assert runner.steps[in_flight - 1 :] == [[1], [1, 2]]
    assert not runner.collect().was_ready


def test_a_step_that_is_to_have_prompts_is_planned_sooner() -> None:
    engine, runner, _ = decoding(cost=CostModel(linear=((1, 0.1),), start_row_s=0.001))
    engine.add((make_request(2, range(40), 4),))
    for _ in range(20):  # the host takes 41 ms for the step with its prompt
        engine.step()
    decodes_at = engine.plan_at
    engine.add((make_request(3, [7] * 100, 4),))
    prompts_at = engine.plan_at
    assert prompts_at == pytest.approx(decodes_at - 0.040)
    engine.step()  # with the first 63 of its tokens
    assert runner.steps[-1] == [1, 3] and engine._expects_prompts
    engine.step()
    assert runner.steps[-1] == [1, 3] and not engine._expects_prompts


def test_tokens_that_are_computed_again_are_prompts_too() -> None:
    engine, _, _ = decoding()
    request = make_request(2, [3], 200)
    engine.add((replace(request, output=tuple([5] * 150)),))
    engine.step()  # the first of three steps with what it has
    assert engine._expects_prompts
    for _ in range(3):
        engine.step()
    assert not engine._expects_prompts


def test_what_cannot_enter_brings_no_prompts_and_what_was_preempted_does() -> None:
    engine, _, _ = decoding()
    for i in range(2, 10):
        engine.add((make_request(i, [i], 30),))
    for _ in range(4):
        engine.step()
    scheduler = engine.scheduler
    assert (len(scheduler.running), list(scheduler.waiting)) == (LIMITS.max_running, [9])
    assert not engine._expects_prompts
    engine.abort(RequestId(9))
    scheduler.preempted[RequestId(8)] = scheduler.running.pop(RequestId(8))
    assert engine._expects_prompts


def test_looking_at_the_moment_changes_nothing_and_what_is_expected_is_told_once_a_step() -> None:
    engine, _, _ = decoding()
    planning = engine._late_planning
    assert planning._expected is False
    engine.add((make_request(2, [3], 4),))
    assert engine._expects_prompts and engine.plan_at > 0.0
    assert planning._expected is False, "the prompt came after the step began"
    engine.step()
    assert planning._expected is False, "it is in the step that runs, whole"
    for i in range(3, 30):
        engine.add((make_request(i, [i] * 60, 4),))
    engine.step()
    assert planning._expected is True


def test_steps_alone_never_wait_and_plan_the_same() -> None:
    late, at_once = decoding(), decoding(PlansAtOnce)
    assert late[1].steps == at_once[1].steps
    assert late[2].now() == at_once[2].now() == pytest.approx(6.0)


def test_the_first_step_runs_while_the_next_waits_for_arrivals() -> None:
    engine, runner, clock = decoding()
    while engine.has_work:
        engine.step()
    runner.steps.clear()
    engine.add((make_request(2, [3], 4),))
    engine.begin()
    engine.begin()  # one is in flight now
    assert runner.steps == [[2]] and engine.plan_at > clock.now()
    engine.add((make_request(3, [4], 4),))
    engine.step()
    assert runner.steps == [[2], [2, 3]]


def test_nothing_is_begun_without_requests() -> None:
    engine, runner, _ = decoding()
    while engine.has_work:
        engine.step()
    num_steps = len(runner.steps)
    engine.begin()
    assert (len(runner.steps), engine.plan_at) == (num_steps, AT_ONCE)


@pytest.mark.parametrize("depth", [1, 3])
def test_with_other_runners_nothing_waits(depth: int) -> None:
    engine, runner, _ = decoding(depth=depth)
    num_steps = len(runner.steps)
    for _ in range(20):
        assert engine.plan_at == AT_ONCE and not engine.can_begin
        engine.begin()
        engine.step()
    assert len(runner.steps) == num_steps + 20


def test_one_step_at_a_time_looks_at_the_clock_as_often_as_the_scheduler_needs() -> None:
    clock = CountingClock()
    engine = Engine(Scheduler(LIMITS, Fcfs()), LedgerRunner(512, 4, 50, depth=1), clock)
    engine.add((make_request(1, [1, 2], 10),))
    for _ in range(10):
        engine.begin()
        engine.step()
    assert not engine.has_work
    assert clock.now() == 1 + 10 * 2 + 1  # added, planned and committed ten times, and this look


class Failing(Noting):
    """Fails the steps of these numbers: in `submit` for want of memory, or in `collect`."""

    full: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()

    def submit(self, plan: StepPlan) -> None:
        if plan.step in self.full:
            raise RunnerFull("full")
        super().submit(plan)

    def collect(self) -> StepResult:
        result = super().collect()
        if result.step in self.failed:
            raise RunnerFailed("failed")
        return result


def test_steps_that_fail_or_do_not_fit_leave_the_next_to_be_planned() -> None:
    clock = VirtualClock()
    runner = Failing(clock)
    runner.full, runner.failed = (1, 20, 21, 40), (30, 50)
    engine = Engine(Scheduler(LIMITS, Fcfs()), runner, clock)
    for id in range(1, 40):
        engine.add((make_request(id, range(6), 30),))
    num_steps = 0
    while engine.has_work:
        engine.begin()
        clock.advance_to(engine.plan_at)
        engine.step()
        num_steps += 1
        assert num_steps < 1000
    assert not runner._results
