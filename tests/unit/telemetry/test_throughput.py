"""Work is counted by a clock that tests move: a step takes as long as the runner says."""

import logging

import pytest

from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.telemetry.throughput import ThroughputLog
from fakes.clocks import HeldClock
from fakes.ledger import LedgerRunner
from fakes.requests import make_samples
from fakes.worlds.world import World

LIMITS = Limits(
    block_size=4, num_blocks=64, max_model_len=256, max_running=8, max_step_tokens=64, vocab_size=50
)  # fmt: skip


class SlowRunner:
    """A step takes a second."""

    depth = 1

    def __init__(self, runner: LedgerRunner, clock: HeldClock) -> None:
        self._runner, self._clock = runner, clock

    def submit(self, plan: StepPlan) -> None:
        self._clock.time += 1.0
        self._runner.submit(plan)

    def collect(self) -> StepResult:
        return self._runner.collect()


def worked(num_output: int) -> tuple[Engine, HeldClock]:
    world, clock = World(LIMITS), HeldClock()
    engine = Engine(world.scheduler, SlowRunner(world.runner, clock), clock)
    engine.observer = ThroughputLog(world.scheduler)  # type: ignore[abstract]
    engine.add(make_samples(1, list(range(20)), 1, max_output=num_output))
    while engine.has_work:
        engine.step()
    return engine, clock


def test_a_line_comes_after_ten_seconds_of_work(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chairlift.throughput")
    worked(9)  # with the prompt's, nine steps
    assert caplog.messages == []
    worked(15)
    assert caplog.messages == [
        "prefill 2 tokens/s, decode 1 tokens/s; 1 requests running, 0 waiting; KV cache 12 % full"
    ]


def test_idle_time_is_not_work(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chairlift.throughput")
    engine, clock = worked(6)
    clock.time += 3600.0
    engine.add(make_samples(2, [1, 2, 3], 1, max_output=3))
    while engine.has_work:
        engine.step()
    assert caplog.messages == []
