"""Shaping, choosing and scoring as the CUDA runner launches it, in Triton's interpreter: no GPU needed."""

import os
import random
from dataclasses import replace

import pytest
import torch

from chairlift.core.request import Request
from chairlift.runner.cuda.sampling import sampler
from chairlift.runner.cuda.sampling.sampler import CudaSampler
from chairlift.runner.sampling.scores import score, to_scores
from chairlift.runner.torch.ops import TorchOps
from fakes.requests import make_request
from fakes.sampled import Row, sample, shape, step_of

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)

VOCAB, SIZE = 61, 4
STOPS = frozenset({2, 40})


class Texts:
    """Texts of one length, their tokens in shuffled blocks, and logits for the next token of each."""

    def __init__(self, requests: list[Request], length: int) -> None:
        rng = random.Random(length)
        self.length, count = length, len(requests)
        self.texts = [[rng.choice([3, 3, 5, rng.randrange(VOCAB)]) for _ in range(length)] for _ in requests]
        self.requests = [
            replace(request, prompt=tuple(text[: len(request.prompt)]))
            for request, text in zip(requests, self.texts, strict=True)
        ]
        width = -(-length // SIZE)
        self.tables = torch.tensor(rng.sample(range(count * width), count * width), dtype=torch.int32).view(count, -1)
        cached_tokens = torch.zeros(count * width, SIZE, dtype=torch.int32)
        for row, text in enumerate(self.texts):
            for place, token in enumerate(text):
                cached_tokens[self.tables[row, place // SIZE], place % SIZE] = token
        self.logits = torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(length)) * 3
        self.last = torch.full((count,), -7)
        self.device = CudaSampler(self.tables, cached_tokens, self.last)

    def rows(self) -> list[Row]:
        return [Row(request, text, self.length) for request, text in zip(self.requests, self.texts, strict=True)]


@pytest.mark.parametrize("length", [3, 11, 60])
def test_logits_are_shaped_as_the_sampler_shapes_them(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "MAX_PENALISED", 2)
    monkeypatch.setattr(sampler, "_STRETCH", 16)
    more = {"temperature": 0.0, "stop_ids": STOPS}
    texts = Texts(
        [
            make_request(0, range(3), 90, **more, repetition_penalty=1.7),
            make_request(1, range(1), 90, **more, presence_penalty=0.7, frequency_penalty=-0.3),
            make_request(2, range(3), 90, **more),
            make_request(3, range(2), 90, **more, logit_bias={3: 4.5, 2: -1.0}, min_tokens=10),
            make_request(4, range(2), 90, **more, repetition_penalty=0.5, frequency_penalty=2.0, logit_bias={5: 1.0}),
        ],
        length,
    )
    wanted = texts.logits.clone()
    shape(wanted, texts.rows())
    for _ in range(2):  # the counts of the first time must not be left
        logits, tokens = texts.logits.clone(), texts.logits.argmax(dim=-1)
        texts.device.choose(step_of(texts.requests, length), logits, tokens)
        torch.testing.assert_close(logits, wanted, rtol=1e-6, atol=1e-6)
        assert tokens.tolist() == wanted.argmax(dim=-1).tolist()


def test_tokens_that_are_the_argmax_are_left_alone() -> None:
    texts = Texts([make_request(0, [1], temperature=0.0), make_request(1, [1]), make_request(2, [1], top_k=3)], 4)
    tokens = torch.tensor([-7, -7, -7])
    texts.device.choose(step_of(texts.requests, 4), texts.logits.clone(), tokens)
    assert tokens.tolist() == [-7, *sample(texts.logits.clone(), texts.rows(), TorchOps()).tokens[1:]]
    assert texts.last.tolist() == tokens.tolist()


def test_scores_are_of_the_raw_logits_and_the_shaped_choice() -> None:
    greedy = {"temperature": 0.0}
    requests = [
        make_request(0, [1], **greedy, logprobs=2),
        make_request(1, [1], **greedy),
        make_request(2, [1], **greedy, logprobs=0, logit_bias={7: 100.0}),
        make_request(3, [1], logprobs=100, top_p=0.9),
    ]
    texts = Texts(requests, 4)
    logits, tokens = texts.logits.clone(), texts.logits.argmax(dim=-1)
    step = step_of(texts.requests, 4)
    measured = texts.device.choose(step, logits, tokens)
    assert measured is not None and step.sampling.scored.tolist() == [0, 2, 3]
    chosen = tokens[[0, 2, 3]].tolist()
    assert chosen[1] == 7
    assert to_scores(measured, chosen, step.sampling.num_top.tolist()) == score(
        texts.logits[[0, 2, 3]], chosen, [2, 0, 100]
    )


def test_a_row_that_is_not_a_number_is_scored_without_harm() -> None:
    texts = Texts([make_request(0, [1], logprobs=1), make_request(1, [1], logprobs=1)], 4)
    texts.logits[0, 3] = torch.nan
    tokens = texts.logits.argmax(dim=-1)
    assert texts.device.choose(step_of(texts.requests, 4), texts.logits, tokens) is not None
    assert tokens[0] == -1 and tokens[1] >= 0 and texts.last[0] == 0
