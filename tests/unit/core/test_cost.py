"""What a step costs under each rule, counted in lines of Python so that a busy machine changes nothing."""

import random
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType
from typing import Any

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler

WARM, STEPS = 40, 32  # as many as a request has tokens on average: some rules let many end at once
RULES = [*(("policy", name) for name in POLICIES), *(("prefill", name) for name in PREFILLS)]
RULES += [("admission", name) for name in ADMISSIONS]


def crowd(outputs: tuple[int, int]) -> Iterator[tuple[Request]]:
    rng, number = random.Random(0), 0
    while True:
        number += 1
        output = rng.randint(*outputs)
        params = SamplingParams(max_tokens=output)
        id, user = RequestId(number), rng.choice("abcd")
        yield (
            Request(
                id=id, prompt=(number, 2, 3), params=params, max_output=output, seed=0, attributes=Attributes(user=user)
            ),
        )


class Lines:
    """Counts lines of Python while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        self.count += event == "line"
        return self._line

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._line)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


def step(scheduler: Scheduler, now: float) -> StepPlan:
    plan = scheduler.schedule(now)
    assert plan is not None
    tokens = [7] * sum(len(chunk.samples) for chunk in plan.chunks)
    scheduler.commit(plan, StepResult(plan.step, tokens), now + 0.01)
    return plan


@lru_cache
def cost(kind: str, name: str, running: int, waiting: int) -> float:
    """Lines per scheduled request, planning and committing, while the running set is full and so many wait; if none do,
    none end."""
    chosen = {"policy": "fcfs", "prefill": "mixed", "admission": "prompt"} | {kind: name}
    limits = Limits(
        vocab_size=100_000, max_model_len=256, block_size=16, num_blocks=8 * running, max_running=running,
        max_step_tokens=4 * running,
    )  # fmt: skip
    rules = POLICIES[chosen["policy"]](), PREFILLS[chosen["prefill"]](), ADMISSIONS[chosen["admission"]]()
    scheduler, source, lines = Scheduler(limits, *rules), crowd((16, 48) if waiting else (100, 100)), Lines()
    num_scheduled = 0
    for i in range(WARM + STEPS):
        while len(scheduler.live) < running + waiting:
            scheduler.add(next(source), 0.01 * i)
        if i < WARM:
            step(scheduler, 0.01 * i)
        else:
            with lines:
                num_scheduled += len(step(scheduler, 0.01 * i).chunks)
        scheduler.take_events()
    return lines.count / num_scheduled


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("kind", "name"), RULES)
def test_a_decode_costs_about_as_much_under_every_rule(kind: str, name: str) -> None:
    assert cost(kind, name, 128, 0) < 1.3 * cost("policy", "fcfs", 128, 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "name"), RULES)
def test_a_step_costs_the_same_per_request_however_many_run(kind: str, name: str) -> None:
    """With requests that end and others that are admitted all the time."""
    assert cost(kind, name, 256, 256) < 1.2 * cost(kind, name, 32, 32)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "name"), RULES)
def test_a_step_costs_the_same_per_request_however_many_wait(kind: str, name: str) -> None:
    assert cost(kind, name, 32, 3200) < 1.3 * cost(kind, name, 32, 32)


def test_admitting_a_cached_prompt_costs_a_dozen_lines_a_block() -> None:
    num_blocks, size = 200, 16
    limits = Limits(
        vocab_size=100_000, max_model_len=4096, block_size=size, num_blocks=1000, max_running=4, max_step_tokens=4096
    )
    scheduler, lines = Scheduler(limits, POLICIES["fcfs"]()), Lines()
    for number in (1, 2):
        prompt, params = (7,) * (num_blocks * size + 1), SamplingParams(max_tokens=1)
        scheduler.add((Request(id=RequestId(number), prompt=prompt, params=params, max_output=1, seed=0),), 0.0)
        with lines:
            plan = scheduler.schedule(0.0)
        assert plan is not None
        scheduler.commit(plan, StepResult(plan.step, [7]), 0.0)
        if number == 1:
            lines.count = 0
    assert plan.num_tokens == 1
    assert lines.count < 12 * num_blocks  # each is looked up once
