from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepResult
from chairlift.core.request import Request
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.ops import Ops
from chairlift.runner.sampling import scores
from chairlift.runner.sampling.matchers import Masks
from chairlift.runner.sampling.table import BatchTable
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.step_result import make_step_result
from unit.runner.largest import Largest
from unit.runner.twins import chunk, request, step

COUNT, VOCAB, TEXT = 30, 5_000, [3, 9, 3, 7]
AT_ONCE = 3  # rows
KINDS = (
    SamplingParams(temperature=0.0, logprobs=3),
    SamplingParams(logprobs=0),
    SamplingParams(top_k=2_000, frequency_penalty=1.0, logprobs=5),
    SamplingParams(top_p=0.9, logit_bias={7: 4.0}, min_tokens=9),
    SamplingParams(temperature=1.5, allowed_token_ids=(5, 6, 4_000), logprobs=2),
    SamplingParams(temperature=0.0),
)


@pytest.fixture(autouse=True)
def few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "_MAX_NUMBERS", AT_ONCE * VOCAB)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


def some_requests(count: int) -> list[Request]:
    kinds = [KINDS[i % len(KINDS)] for i in range(count)]
    return [request(TEXT, kind, i, seed=i, num_prompt=2, stop_ids=frozenset({1})) for i, kind in enumerate(kinds)]


def result_of(requests: Sequence[Request], logits: torch.Tensor, ops: Ops) -> StepResult:
    plan = step([chunk(TEXT, len(TEXT) - 1, 1, [0], each) for each in requests])
    samples, changes = BatchTable().of(1, requests, [len(TEXT)] * len(requests))
    held = [i for i, each in enumerate(requests) if each.params.is_masked]
    words = np.zeros((len(held), -(-VOCAB // 32)), np.int32)
    words[:, 4_000 // 32] = 3
    model: Any = SimpleNamespace(ops=ops)
    ids, texts = [each.id for each in requests], [TEXT] * len(requests)
    masks = held, Masks(words, {})
    return make_step_result(plan, ids, samples, texts, changes, logits, {}, model, masks)[0]


@pytest.mark.parametrize("make", [TorchOps, lambda: NativeOps(2)], ids=["torch", "native"])
def test_rows_of_a_large_step_are_sampled_and_scored_as_each_alone(make: Any) -> None:
    if make is not TorchOps and not available():
        pytest.skip("needs the native kernels: a C compiler when installing")
    requests, ops = some_requests(COUNT), make()
    logits = torch.randn(COUNT, VOCAB, generator=torch.Generator().manual_seed(1))
    logits[20, 4] = torch.nan
    alone = [result_of([each], logits[i : i + 1].clone(), ops) for i, each in enumerate(requests)]
    together = result_of(requests, logits, ops)
    del together.scores[20], alone[20].scores[20]  # not a number
    assert together.tokens == [each.tokens[0] for each in alone]
    assert together.scores == {id: score for each in alone for id, score in each.scores.items()}
    assert list(together.failed) == [20]


def test_a_large_step_takes_little_memory_beside_its_logits() -> None:
    logits = torch.randn(COUNT, VOCAB, generator=torch.Generator().manual_seed(1))
    with Largest() as seen:
        result_of(some_requests(COUNT), logits, TorchOps())
    assert seen.most <= AT_ONCE * VOCAB < logits.numel()
