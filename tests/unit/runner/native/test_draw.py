"""Tokens drawn natively: those that the sampler draws with torch, on every instruction set this processor has."""

from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chairlift.core.params import SamplingParams
from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.sampling.table import Samples
from chairlift.runner.torch.ops import TorchOps
from fakes.sampled import Row, sample, samples_of, uniform
from unit.runner.twins import request

pytestmark = pytest.mark.skipif(not available(), reason="the kernels are not built or not for this processor")

PARAMS = {
    "plain": SamplingParams(),
    "cold": SamplingParams(temperature=0.3),
    "top-k": SamplingParams(top_k=40),
    "one": SamplingParams(top_k=1, temperature=5.0),
    "wide top-k": SamplingParams(top_k=500, temperature=2.0),
    "top-p": SamplingParams(top_p=0.9, temperature=0.8),
    "wide top-p": SamplingParams(top_p=0.98, temperature=3.0),
    "tiny top-p": SamplingParams(top_p=1e-6, temperature=3.0),
    "min-p": SamplingParams(min_p=0.05),
    "all": SamplingParams(top_k=100, top_p=0.8, min_p=0.01, temperature=1.5),
    "huge top-k": SamplingParams(top_k=10**6, top_p=0.9),
    "far top-k": SamplingParams(top_k=1000, temperature=2.0),
    "far": SamplingParams(top_k=20_000, top_p=0.9, min_p=1e-5, temperature=5.0),
    "flat": SamplingParams(top_p=0.02, temperature=100.0),
}


@pytest.fixture(params=[-1, library.HAS_AVX2, 0], ids=["best", "avx2", "baseline"], scope="module", autouse=True)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    kernels = library.load()
    assert kernels is not None
    kernels.chairlift_features(request.param)
    yield
    kernels.chairlift_features(-1)


@cache
def logits_of(rows: int, vocab: int, spread: float = 3.0, seed: int = 0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def rows_of(count: int, params: SamplingParams, first_seed: int = 0) -> list[Row]:
    tokens = [1, 2, 3]
    return [Row(request(tokens, params, seed=first_seed + i, sample_index=i % 3), tokens, 3) for i in range(count)]


@cache
def drawn_with_torch(name: str, vocab: int, count: int) -> list[int]:
    """By no instruction set of the kernels, so once for all."""
    return list(sample(logits_of(count, vocab).clone(), rows_of(count, PARAMS[name]), TorchOps()).tokens)


@cache
def samples_named(name: str, count: int) -> Samples:
    return samples_of(rows_of(count, PARAMS[name]))


def drawn(logits: Tensor, rows: list[Row]) -> list[int]:
    return NativeOps(2).draw(logits.clone(), samples_of(rows))


@pytest.mark.parametrize("vocab", [300, 49152])
@pytest.mark.parametrize("name", PARAMS)
def test_the_token_is_the_one_that_torch_draws(name: str, vocab: int) -> None:
    check_tokens(name, vocab)


@given(name=st.sampled_from([*PARAMS]), vocab=st.sampled_from([5, 256, 2048]) | st.integers(2, 3000))
@settings(max_examples=25, deadline=None)
def test_of_any_vocabulary_the_token_is_the_one_that_torch_draws(name: str, vocab: int) -> None:
    check_tokens(name, vocab)


def check_tokens(name: str, vocab: int) -> None:
    count, params = 64, PARAMS[name]
    logits, rows = logits_of(count, vocab), rows_of(count, params)
    with_torch = drawn_with_torch(name, vocab, count)
    natively = sample(logits.clone(), rows, NativeOps(2)).tokens
    # A noise at the very edge between two tokens may fall on either side by rounding: one in thousands.
    assert sum(a != b for a, b in zip(natively, with_torch, strict=True)) <= 1


@pytest.mark.parametrize("spread", [0.0, 1e-6, 40.0], ids=["equal", "nearly", "steep"])
@pytest.mark.parametrize(
    "params",
    [SamplingParams(top_k=1000), SamplingParams(top_p=0.01003), SamplingParams(top_k=300, top_p=0.5, min_p=0.9)],
    ids=["top-k", "top-p", "all"],
)
def test_tokens_far_behind_and_equal_ones_are_drawn_in_order(params: SamplingParams, spread: float) -> None:
    logits, rows = logits_of(16, 20_000, spread), rows_of(16, params)
    assert drawn(logits, rows) == sample(logits.clone(), rows, TorchOps()).tokens


def test_equal_tokens_at_the_edge_are_kept_by_id() -> None:
    logits = torch.zeros(400, 3000)
    logits[:, [2999, 17, 5, 1000]] = 8.0
    assert set(drawn(logits, rows_of(400, SamplingParams(top_k=3)))) == {5, 17, 1000}
    assert set(drawn(logits, rows_of(400, SamplingParams(top_p=0.3)))) == {5, 17}


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((300, 4000), -torch.inf)
    logits[:, 3990:] = 0.0
    logits[:, :2] = 0.0
    for params in (SamplingParams(), SamplingParams(min_p=0.5)):
        tokens = sample(logits.clone(), rows_of(300, params), NativeOps(2)).tokens
        assert set(tokens) == {0, 1, *range(3990, 4000)}


@pytest.mark.parametrize("name", ["plain", "top-k", "wide top-p", "all"])
def test_tokens_come_as_often_as_they_are_likely(name: str) -> None:
    params, vocab, draws = PARAMS[name], 3000, 5_000
    logits = logits_of(1, vocab, spread=2.0)
    order = logits[0].argsort(descending=True, stable=True)
    scaled = logits[0][order].double() / params.temperature
    shares = scaled.softmax(0)
    if params.top_k:
        shares = torch.where(torch.arange(vocab) < params.top_k, shares, 0.0)
        shares /= shares.sum()
    shares = torch.where(shares.cumsum(0) - shares < params.top_p, shares, 0.0)
    shares = torch.where((scaled - scaled[0]).exp() >= params.min_p, shares, 0.0)
    shares /= shares.sum()
    counts = Counter(NativeOps(2).draw(logits.expand(draws, -1), samples_named(name, draws)))
    assert set(counts) <= set(order[shares > 0].tolist())
    # Chi-square over ten parts that are about equally likely; 40 is beyond the 99.999th percentile.
    parts = (shares.cumsum(0) * 10).long().clamp(max=9)
    often = torch.tensor([counts[token] for token in order.tolist()], dtype=torch.float64)
    expected, found = (torch.zeros(10).double().index_add(0, parts, each) for each in (shares * draws, often))
    is_likely = expected > 0
    assert (((found - expected) ** 2)[is_likely] / expected[is_likely]).sum() < 40


def test_a_row_gets_the_same_token_in_any_batch_and_with_any_number_of_threads() -> None:
    logits, kinds = logits_of(44, 49152), list(PARAMS.values())
    rows = [Row(request([1], kinds[i % len(kinds)], seed=i), [1], 1) for i in range(44)]
    together = drawn(logits, rows)
    assert together == [drawn(logits[i : i + 1], [rows[i]])[0] for i in range(44)]
    assert together == NativeOps(1).draw(logits.clone(), samples_of(rows))
    some = [7, 3, 40]
    assert [together[i] for i in some] == NativeOps(2).draw(logits.clone(), samples_of(rows)[some])


def test_the_noise_is_the_sampler_s_own() -> None:
    """With equal weights the token drawn is the noise, in steps of one over the vocabulary."""
    vocab = 1000
    rows = [
        Row(request([1], SamplingParams(), seed=seed, sample_index=index), [1] * position, position)
        for seed in (0, 5, -1, 2**63, 2**64 - 1)
        for index in (0, 3)
        for position in (1, 700)
    ]
    expected = [int(uniform(r.request.seed, r.request.sample_index, r.num_tokens) * vocab) for r in rows]
    assert drawn(torch.zeros(len(rows), vocab), rows) == expected
