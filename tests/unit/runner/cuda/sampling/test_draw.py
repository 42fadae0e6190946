"""The tokens that the Triton kernel draws are the sampler's, in Triton's interpreter: no GPU needed."""

import os
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.runner.cuda.sampling.draw import draw_kernel
from chairlift.runner.cuda.sampling.rows import DRAW_WIDTH
from chairlift.runner.sampling.sampler import CANDIDATES
from chairlift.runner.sampling.table import MAX_ATTEMPTS
from chairlift.runner.torch.ops import TorchOps
from fakes.requests import make_request
from fakes.sampled import Row, sample, step_of

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)

LENGTH = 5
KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"temperature": 1e-7},
    {"top_k": 1, "temperature": 5.0},
    {"top_k": 7},
    {"top_k": 90, "temperature": 3.0},
    {"top_k": 10**12, "top_p": 0.9},
    {"top_p": 0.8},
    {"top_p": 0.98, "temperature": 3.0},
    {"top_p": 1e-6},
    {"min_p": 0.05},
    {"min_p": 1.0, "temperature": 2.0},
    {"top_k": 50, "top_p": 0.8, "min_p": 0.01, "temperature": 1.5},
]


def drawn(logits: Tensor, kinds: list[dict[str, Any]], tile: int, first: int = 0) -> list[int]:
    """Tokens of requests first, first + 1, ..., of these kinds."""
    count = len(kinds)
    step = step_of([make_request(first + i, [0], **kind) for i, kind in enumerate(kinds)], LENGTH)
    draws = torch.from_numpy(step.sampling.draws)
    tokens, last = torch.full((count,), -7), torch.full((count,), -7)
    draw_kernel[(count,)](
        logits, draws, tokens, last, logits.shape[1],
        WIDTH=DRAW_WIDTH, CANDIDATES=CANDIDATES, ATTEMPTS=MAX_ATTEMPTS, PIVOTS=4, TILE=tile, STAGES=1,
    )  # fmt: skip
    assert last.tolist() == tokens.clamp(min=0).tolist()
    return tokens.tolist()


def sampled(logits: Tensor, kinds: list[dict[str, Any]], first: int = 0) -> list[int]:
    rows = [Row(make_request(first + i, [0], **kind), range(LENGTH), LENGTH) for i, kind in enumerate(kinds)]
    return sample(logits.clone(), rows, TorchOps()).tokens


def noisy(rows: int, vocab: int, seed: int) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def some_forbidden(rows: int, vocab: int, seed: int) -> Tensor:
    logits = noisy(rows, vocab, seed)
    return logits.masked_fill(logits < 1, -torch.inf)


SHAPES = {
    "noisy": noisy,
    "coarse": lambda *shape: noisy(*shape).round(),  # many tokens are as likely as others
    "equal": lambda *shape: noisy(*shape) * 0.0,  # zeros of both signs
    "some forbidden": some_forbidden,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", list(SHAPES))
def test_filters_and_draws_are_the_samplers(shape: str) -> None:
    logits = SHAPES[shape](len(KINDS), 97, 1)
    assert drawn(logits, KINDS, tile=64) == sampled(logits, KINDS)


@pytest.mark.parametrize("shape", ["noisy", "equal"])
def test_filters_that_keep_more_than_the_sampler_sorts_draw_from_all(shape: str) -> None:
    kinds = [{"top_p": 0.97, "temperature": 3.0}, {"min_p": 1e-4, "temperature": 2.0}, {"top_k": 400, "top_p": 0.9}]
    logits = SHAPES[shape](len(kinds), 600, 2)
    for first in (0, 10):
        assert drawn(logits, kinds, 256, first) == sampled(logits, kinds, first)


def test_a_row_gets_the_same_token_in_any_launch() -> None:
    logits = noisy(4, 97, 3)
    kinds = [KINDS[i] for i in (0, 7, 10, 12)]
    together = drawn(logits, kinds, 64)
    assert together == [drawn(logits[i : i + 1], kinds[i : i + 1], 64, first=i)[0] for i in range(4)]


def test_rows_that_are_not_numbers_have_no_token() -> None:
    logits = noisy(5, 97, 4)
    logits[0, 80], logits[1, 3], logits[2] = torch.nan, torch.inf, -torch.inf
    kinds = [{}, {"top_p": 0.5}, {}, {"top_p": 0.5}, {"temperature": 0.0, "logit_bias": {0: 0.0}}]
    assert drawn(logits, kinds, 64) == [-1, -1, -1, *sampled(logits[3:], kinds[3:], first=3)]


def test_the_argmax_is_the_first_of_equals() -> None:
    logits = torch.zeros(2, 97)
    logits[0, [70, 90]], logits[1] = 1.0, -0.0
    assert drawn(logits, [{"temperature": 0.0, "logit_bias": {0: 0.0}}] * 2, 64) == [70, 0]


def test_the_widest_parameters_are_within_their_types() -> None:
    kinds = [{"temperature": 100.0, "top_k": 2**40, "top_p": 1.0, "min_p": 0.0, "seed": 2**64 - 1}]
    logits = noisy(1, 97, 5)
    assert drawn(logits, kinds, 128) == sampled(logits, kinds)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("vocab", "tile"),
    [
        (300, 128),
        *(pytest.param(*shape, marks=pytest.mark.nightly) for shape in ((97, 128), (1000, 256), (5000, 2048))),
    ],
)
def test_whatever_is_asked_the_tokens_are_the_samplers(vocab: int, tile: int) -> None:
    rng = random.Random(vocab)
    for first in range(0, 60, 20):
        kinds = [
            {
                "temperature": rng.choice([0.01, 0.5, 1.0, 4.0]),
                "top_k": rng.choice([0, 0, 1, 5, 50, vocab - 1, vocab]),
                "top_p": rng.choice([1.0, 0.99, 0.9, 0.5, 0.01]),
                "min_p": rng.choice([0.0, 0.0, 0.001, 0.1, 0.9]),
            }
            for _ in range(20)
        ]
        logits = rng.choice(list(SHAPES.values()))(len(kinds), vocab, first)
        assert drawn(logits, kinds, tile, first) == sampled(logits, kinds, first)
