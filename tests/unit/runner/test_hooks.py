"""The hook for logits: a row for every sample, before penalties and draws."""

import numpy as np
import pytest
import torch

from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan
from chairlift.runner.hooks import LogitsRecorder, ShowsLogits
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.worlds.models import CONFIG
from unit.runner.twins import chunk, request, step

CPU = torch.device("cpu")
PROMPT = [5, 6, 7, 8, 9]


@pytest.fixture
def runner() -> TorchRunner:
    model = build_model(CONFIG, TorchOps(), DummyTensors(CONFIG), torch.float32, CPU, CONFIG.max_model_len)
    return TorchRunner(model, KvCache(CONFIG, 8, 4, torch.float32, CPU), CPU)


def rows_of(runner: TorchRunner, plan: StepPlan, wanted: set[int]) -> dict[tuple[int, int], np.ndarray]:
    seen = LogitsRecorder(lambda request, _: request in wanted)
    runner.on_logits = seen
    runner.submit(plan)
    runner.collect()
    return {(found.request, found.position): found.row for found in seen.take()}


def test_only_rows_of_wanted_requests_are_kept_with_their_positions(runner: TorchRunner) -> None:
    plan = step([chunk(PROMPT, 0, 5, [0, 1], request(PROMPT, id=1)), chunk(PROMPT, 0, 3, [2], request(PROMPT, id=2))])
    both = rows_of(runner, plan, {1, 2})
    assert sorted(both) == [(1, 4), (2, 2)]
    assert list(rows_of(runner, plan, {2})) == [(2, 2)]
    assert not np.array_equal(both[1, 4], both[2, 2])


def test_rows_are_the_model_s_logits_with_any_parameters(runner: TorchRunner) -> None:
    biased = SamplingParams(temperature=0.0, logit_bias={3: 50.0}, repetition_penalty=2.0)
    plain = rows_of(runner, step([chunk(PROMPT, 0, 5, [0, 1], request(PROMPT, id=1))]), {1})
    asked = rows_of(runner, step([chunk(PROMPT, 0, 5, [2, 3], request(PROMPT, biased, id=1))]), {1})
    np.testing.assert_array_equal(plain[1, 4], asked[1, 4])


def test_samples_of_one_prompt_are_shown_one_row_each(runner: TorchRunner) -> None:
    lead, other = request(PROMPT, id=1), request(PROMPT, id=2, sample_index=1)
    prompt = chunk(PROMPT, 0, 5, [0, 1], lead)._replace(samples=(lead, other))
    rows = rows_of(runner, step([prompt]), {1, 2})
    np.testing.assert_array_equal(rows[1, 4], rows[2, 4])


def test_a_runner_shows_logits(runner: TorchRunner) -> None:
    assert isinstance(runner, ShowsLogits)
