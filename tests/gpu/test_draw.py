"""Tokens drawn on a GPU from large vocabularies: the sampler's."""

import random

import pytest
import torch

from chairlift.runner.torch.ops import TorchOps
from fakes.requests import make_request
from fakes.sampled import Row, sample, step_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

COUNT = 64


@pytest.mark.parametrize("vocab", [1000, 32000, 128256, 262144])
@pytest.mark.parametrize("is_coarse", [False, True])
def test_rows_get_the_samplers_tokens_together_and_alone(vocab: int, is_coarse: bool) -> None:
    from chairlift.runner.cuda.sampling.sampler import draw

    rng = random.Random(vocab)
    requests = [
        make_request(
            i, [0], temperature=rng.choice([0.1, 0.7, 1.0]), top_k=rng.choice([0, 0, 1, 50, 2000]),
            top_p=rng.choice([1.0, 0.95, 0.5]), min_p=rng.choice([0.0, 0.0, 0.05]),
        )
        for i in range(COUNT)
    ]  # fmt: skip
    logits = torch.randn(COUNT, vocab, generator=torch.Generator().manual_seed(vocab)) * 3
    if is_coarse:  # as from weights of few bits: many are equal
        logits = logits.bfloat16().float()
    want = sample(logits.clone(), [Row(request, range(5), 5) for request in requests], TorchOps()).tokens
    draws = torch.from_numpy(step_of(requests, 5).sampling.draws).cuda()
    got = torch.full((COUNT,), -7, device="cuda")
    last = torch.full((COUNT,), -7, device="cuda")
    on_gpu = logits.cuda()
    draw(on_gpu, draws, got, last)
    assert last.tolist() == got.tolist()
    # Sums are rounded in another order, so a draw that falls on an edge may go to the neighbour.
    assert sum(a != b for a, b in zip(got.tolist(), want, strict=True)) <= 2
    alone = torch.full((COUNT,), -7, device="cuda")
    for i in range(0, COUNT, 5):
        draw(on_gpu, draws[i : i + 1], alone, last)
        assert alone[i] == got[i]
