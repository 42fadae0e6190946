"""Step inputs as bytes: read in another process, with a device part of its own, they give the same tokens."""

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chairlift.core.engine import Engine
from chairlift.core.events import Event, Forked, Preempted, PromptScored
from chairlift.core.request import Request
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.step.in_flight import InFlight, StepOutput
from chairlift.runner.cuda.step.input import StepInput
from fakes.clocks import CountingClock
from fakes.requests import make_request
from fakes.sampled import step_of
from fakes.text_model import CPU, NoEvent, TextModel, cache_of, config_of, told, write
from fakes.worlds.draws import random_world

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)
KINDS: list[dict[str, Any]] = [
    {"temperature": 0.0}, {}, {"top_k": 2, "logprobs": 2}, {"top_p": 0.8, "repetition_penalty": 1.3},
    {"temperature": 0.0, "logit_bias": {1: 1.5}, "frequency_penalty": 0.5, "logprobs": 0},
]  # fmt: skip


def run(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[object], list[Event], dict[str, int]]:
    """The step inputs of a random world with all kinds of requests, their outputs, and what happened."""
    world, rng = random_world(seed), random.Random(seed)
    limits = world.limits
    runner = CudaRunner(TextModel(config_of(limits)), cache_of(limits), CPU, limits)  # type: ignore[arg-type]
    runner.uses_graphs = False
    steps: list[bytes] = []
    outputs: list[object] = []
    launch, output = runner.device.launch, InFlight.output

    def kept(step: StepInput, *rest: Any) -> InFlight:
        steps.append(step.to_bytes())
        return launch(step, *rest)

    def noted(step: InFlight) -> StepOutput:
        found = output(step)
        outputs.append(told(found))
        return found

    monkeypatch.setattr(runner.device, "launch", kept)
    monkeypatch.setattr(InFlight, "output", noted)
    engine = Engine(world.scheduler, runner, CountingClock())
    events: list[Event] = []
    step = 0
    while engine.has_work or step <= max([0, *world.arrivals, *world.aborts]):
        for samples in world.arrivals.get(step, ()):
            engine.add(_of_some_kind(samples, rng))
        for request in world.aborts.get(step, ()):
            engine.abort(request)
        events += engine.step()
        step += 1
    return steps, outputs, events, asdict(limits)


def _of_some_kind(samples: tuple[Request, ...], rng: random.Random) -> tuple[Request, ...]:
    if samples[0].params.beam_width:
        return samples
    kind = rng.choice(KINDS)
    return tuple(replace(request, params=replace(request.params, **kind)) for request in samples)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "seed",
    [7, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (0, 3, 5, 12, 13, 16, 17, 29, 33, 39, 47, 52, 57))],
)
def test_step_inputs_give_the_same_tokens_in_another_process(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", NoEvent)
    steps, outputs, events, limits = run(seed, monkeypatch)
    assert {Forked, Preempted, PromptScored} <= {type(event) for event in events}
    write(tmp_path / "steps", steps)
    done = subprocess.run(
        [sys.executable, "-m", "fakes.text_model", json.dumps(limits), str(tmp_path / "steps")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == outputs


def test_what_is_read_is_what_was_written() -> None:
    step = step_of([make_request(1, range(3), logprobs=2, logit_bias={4: 1.0}), make_request(2, range(3))], 5)
    again = StepInput.from_bytes(step.to_bytes())
    assert again[:3] == step[:3]
    for one, other in zip(_arrays(step), _arrays(again), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def _arrays(step: StepInput) -> list[np.ndarray]:
    return [*step.columns, *step[4:10], *step.sampling, *step[11:-1], *step.states]  # type: ignore[list-item]


def test_bytes_of_another_kind_are_refused() -> None:
    data = bytearray(step_of([make_request(1, range(3))], 5).to_bytes())
    data[8] += 1
    with pytest.raises(ValueError, match="not a step input of version 4"):
        StepInput.from_bytes(bytes(data))
