"""Steps planned late beside steps planned at once, on the same work."""

import random
from dataclasses import fields

import pytest

from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.drive import drive
from chairlift.lab.sim.runner import VirtualClock
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.requests import requests_of
from chairlift.telemetry.report import Report
from chairlift.telemetry.timeline import Timeline
from fakes.engines import PlansAtOnce
from fakes.noisy_steps import CountingRunner, NoisyCost

LIMITS = Limits(
    vocab_size=1000, max_model_len=4096, block_size=16, num_blocks=8192, max_running=128, max_step_tokens=2048
)
COST = CostModel(
    linear=((1, 0.004), (128, 0.005), (256, 0.007), (2048, 0.044)), kv_token_s=6e-8, pair_s=1e-9, start_s=0.001
)


def run(kind: type[Engine], noise: float = 0.0, concurrency: int = 0) -> tuple[Report, CountingRunner]:
    rng = random.Random(5)
    items, now = [], 0.0
    for _ in range(400):
        now += rng.expovariate(20.0)
        items.append(Item(prompt_tokens=rng.randint(10, 900), output_tokens=rng.randint(5, 150), arrival_s=now))
    clock, timeline = VirtualClock(), Timeline()
    cost = NoisyCost(noise=noise, **{field.name: getattr(COST, field.name) for field in fields(COST)})
    runner = CountingRunner(cost, clock)
    drive(kind(Scheduler(LIMITS, Fcfs()), runner, clock, timeline), clock, requests_of(items, LIMITS, 0), concurrency)
    return timeline.report(), runner


@pytest.mark.sampled(1)
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_first_tokens_come_sooner_and_few_steps_are_late(noise: float) -> None:
    at_once, _ = run(PlansAtOnce, noise)
    late, runner = run(Engine, noise)
    assert late.finished == at_once.finished == 400
    assert late.ttft_s.p50 < 0.9 * at_once.ttft_s.p50
    assert late.tpot_s.p50 < 1.02 * at_once.tpot_s.p50
    assert runner.num_steps > 2000
    assert runner.num_late < 0.02 * runner.num_steps


def test_a_closed_loop_waits_for_nothing_but_its_answers() -> None:
    at_once, _ = run(PlansAtOnce, concurrency=16)
    late, _ = run(Engine, concurrency=16)
    assert late.finished == at_once.finished == 400
    assert late.total_s < 1.005 * at_once.total_s


def test_two_runs_are_equal() -> None:
    assert run(Engine, 0.02)[0] == run(Engine, 0.02)[0]
