"""Steady decoding beside requests on their way between engines."""

from dataclasses import replace

from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.runner import TOKEN, SimRunner, VirtualClock
from fakes.requests import make_request

LIMITS = Limits(vocab_size=99, max_model_len=64, block_size=4, num_blocks=64, max_running=8, max_step_tokens=64)


def decoding() -> Engine:
    """With request 1 in the middle of its answer."""
    scheduler, clock = Scheduler(LIMITS, Fcfs(), preemption=Preemption(num_host_blocks=64)), VirtualClock()
    engine = Engine(scheduler, SimRunner(CostModel(linear=((1, 0.01),)), 4, clock), clock)
    engine.add((make_request(1, range(8), 20),))
    engine.step()
    assert scheduler.steady.find(TOKEN, 5) is not None
    return engine


def test_a_request_that_is_asked_to_leave_ends_steady_decoding() -> None:
    engine = decoding()
    engine.add((make_request(2, range(8), 20),))
    engine.step()
    engine.leave(make_request(1, range(8)).id)
    assert engine.scheduler.steady.find(TOKEN, 5) is None
    engine.step()  # it leaves
    steady = engine.scheduler.steady.find(TOKEN, 5)
    assert steady is not None
    assert [progress.id for progress in steady.decodes] == [2]


def test_a_request_that_arrives_ends_it_when_it_is_there() -> None:
    engine = decoding()
    moved = replace(make_request(2, range(8), 20), output=(TOKEN,), num_moved=8)
    engine.add((moved,))
    assert engine.scheduler.steady.find(TOKEN, 5) is not None
    engine.arrive(moved.id, is_whole=True)
    assert engine.scheduler.steady.find(TOKEN, 5) is None
