"""Requests for vectors in the scheduler: each gets its own, once, however steps cut prompts."""

import random
from collections import deque

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.engine import Engine
from chairlift.core.events import Embedded, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policies.fair_share import InTurn
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from fakes.clocks import CountingClock


class PromptRunner:
    """A prompt's vector is the prompt itself."""

    depth = 1

    def __init__(self) -> None:
        self._results: deque[StepResult] = deque()

    def submit(self, plan: StepPlan) -> None:
        done = [chunk.request for chunk in plan.chunks if chunk.samples]
        vectors = {request.id: bytes(request.prompt) for request in done}
        self._results.append(StepResult(plan.step, [0] * len(done), vectors=vectors))

    def collect(self) -> StepResult:
        return self._results.popleft()


@pytest.mark.parametrize("seed", range(40))
def test_every_request_gets_the_vector_of_its_prompt_once(seed: int) -> None:
    world = random.Random(seed)
    max_len, max_running = world.randint(2, 9), world.randint(1, 4)
    limits = Limits(
        vocab_size=50, max_model_len=max_len + 1, block_size=max_len + 1, num_blocks=max_running,
        max_running=max_running, max_step_tokens=max_running + world.randint(0, 5),
    )  # fmt: skip
    engine = Engine(Scheduler(limits, InTurn(), has_prefix_index=False), PromptRunner(), CountingClock())
    prompts = [
        tuple(world.randrange(50) for _ in range(world.randint(1, max_len))) for _ in range(world.randint(1, 20))
    ]
    for i, prompt in enumerate(prompts):
        params, attributes = SamplingParams(max_tokens=1), Attributes(group=world.choice("abc"))
        request = Request(id=RequestId(i), prompt=prompt, params=params, max_output=1, seed=0, attributes=attributes)
        engine.add((request,))
    made: dict[int, bytes] = {}
    ended = []
    for _ in range(20 * max_len):
        for event in engine.step():
            if isinstance(event, Embedded):
                assert event.request not in made
                made[event.request] = event.vector
            elif isinstance(event, Token):
                assert event.request in made and event.finish is not None
                ended.append(event.request)
    assert made == {i: bytes(prompt) for i, prompt in enumerate(prompts)}
    assert sorted(ended) == list(range(len(prompts))) and not engine.has_work
