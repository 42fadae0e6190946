import math
from collections import Counter

import pytest
import torch

from chairlift.core.params import SamplingParams
from chairlift.runner.sampling.sampler import _largest
from chairlift.runner.sampling.scores import count_above, score
from chairlift.runner.torch.ops import TorchOps
from fakes.sampled import Row, sample, uniform
from unit.runner.largest import Largest
from unit.runner.twins import request

OPS = TorchOps()
SHARES = [0.4, 0.3, 0.15, 0.1, 0.05]


def logits_of(shares: list[float]) -> torch.Tensor:
    return torch.tensor(shares).log()


def row(params: SamplingParams, tokens: tuple[int, ...] = (0,), num_prompt: int = 1, **of: object) -> Row:
    return Row(request(list(tokens), params, num_prompt=num_prompt, **of), tokens, len(tokens))


def choose(logits: torch.Tensor, one: Row) -> int:
    return sample(logits[None].clone(), [one], OPS).tokens[0]


def frequencies(params: SamplingParams, shares: list[float] | torch.Tensor, draws: int = 4000) -> dict[int, float]:
    """How often each token is chosen over many seeds."""
    logits = shares if isinstance(shares, torch.Tensor) else logits_of(shares)
    rows = [row(params, seed=seed) for seed in range(draws)]
    counts = Counter(sample(logits.repeat(draws, 1), rows, OPS).tokens)
    return {token: count / draws for token, count in sorted(counts.items())}


def assert_like(found: dict[int, float], expected: dict[int, float], draws: int = 4000) -> None:
    assert found.keys() == expected.keys()
    # Chi-square over the kept tokens; 30 is beyond the 99.999th percentile for up to five.
    chi_square = sum(draws * (found[token] - share) ** 2 / share for token, share in expected.items())
    assert chi_square < 30


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert choose(torch.tensor([1.0, 3.0, 2.0, 3.0]), row(SamplingParams(temperature=0.0))) == 1


def test_plain_sampling_follows_the_probabilities() -> None:
    assert_like(frequencies(SamplingParams(), SHARES), dict(enumerate(SHARES)))


def test_temperature_sharpens_and_flattens() -> None:
    for temperature in (0.5, 2.0):
        powers = [share ** (1 / temperature) for share in SHARES]
        expected = {token: power / sum(powers) for token, power in enumerate(powers)}
        assert_like(frequencies(SamplingParams(temperature=temperature), SHARES), expected)


def test_a_tiny_temperature_is_greedy() -> None:
    for temperature in (1e-3, 1e-30):
        assert frequencies(SamplingParams(temperature=temperature), SHARES, 50) == {0: 1.0}


def test_top_k_keeps_k() -> None:
    assert_like(frequencies(SamplingParams(top_k=2), SHARES), {0: 0.4 / 0.7, 1: 0.3 / 0.7})


def test_top_k_beyond_the_vocabulary_keeps_all() -> None:
    assert_like(frequencies(SamplingParams(top_k=1000), SHARES), dict(enumerate(SHARES)))


def test_top_p_keeps_the_crossing_token() -> None:
    assert_like(frequencies(SamplingParams(top_p=0.5), SHARES), {0: 0.4 / 0.7, 1: 0.3 / 0.7})


def test_a_tiny_top_p_keeps_the_most_likely() -> None:
    assert frequencies(SamplingParams(top_p=1e-6), SHARES, 50) == {0: 1.0}


def test_top_p_takes_its_part_of_what_top_k_left() -> None:
    # Of 0.4, 0.3, 0.15 the first two are 82%; of everything they are only 70%.
    found = frequencies(SamplingParams(top_k=3, top_p=0.8), SHARES)
    assert_like(found, {0: 0.4 / 0.7, 1: 0.3 / 0.7})


def test_min_p_is_relative_to_the_most_likely() -> None:
    assert_like(frequencies(SamplingParams(min_p=0.3), SHARES), {i: SHARES[i] / 0.85 for i in range(3)})


def test_equal_tokens_at_the_edge_are_kept_by_id() -> None:
    assert_like(frequencies(SamplingParams(top_k=2), [0.25] * 4), {0: 0.5, 1: 0.5})
    assert_like(frequencies(SamplingParams(top_p=0.5), [0.25] * 4), {0: 0.5, 1: 0.5})


@pytest.mark.parametrize("kind", ["peaked", "flat", "equal"])
@pytest.mark.parametrize(
    "params",
    [SamplingParams(top_k=40), SamplingParams(top_k=900, top_p=0.8), SamplingParams(top_p=0.95)],
    ids=["k", "kp", "p"],
)
def test_filters_over_a_large_vocabulary_keep_what_a_full_sort_keeps(kind: str, params: SamplingParams) -> None:
    torch.manual_seed(0)
    spread = {"peaked": 8.0, "flat": 0.1, "equal": 0.0}[kind]
    # Rounded, so that many are equal.
    logits = (torch.randn(1200) * spread).bfloat16().float()
    order = sorted(range(1200), key=lambda token: (-logits[token].item(), token))[: params.top_k or 1200]
    shares = logits[order].double().softmax(0)
    before = shares.cumsum(0) - shares
    kept = {token for token, sum_before in zip(order, before.tolist(), strict=True) if sum_before < params.top_p}
    draws = 1500
    found = set(frequencies(params, logits, draws))
    assert found <= kept
    edge = order[len(kept) - 1]
    expected_edge = shares[len(kept) - 1].item() / shares[: len(kept)].sum().item()
    if expected_edge * draws > 20:
        assert edge in found


@pytest.mark.parametrize("vocab", [300, 4096, 5003])
def test_the_largest_of_a_row_are_found_wherever_they_lie(vocab: int) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(6, vocab) * 3).bfloat16().float()
    logits[0] = logits[0].sort().values  # all at the end, beyond the last whole group
    logits[1] = logits[1].sort(descending=True).values
    logits[2, torch.arange(40) * (vocab // 40)] += 100.0  # several in one group
    values, ids = _largest(logits, 256)
    assert torch.equal(values, logits.topk(256).values)
    assert torch.equal(values, logits.gather(-1, ids))
    assert all(len(set(row)) == 256 for row in ids.tolist())


def test_a_large_share_of_a_flat_top_p_is_reached() -> None:
    found = frequencies(SamplingParams(top_p=0.5), torch.zeros(1000), 2000)
    assert len(found) > 400 and max(found) < 501


def test_repetition_penalty_covers_prompt_and_output_as_in_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    logits = torch.tensor([2.0, -1.0, 1.9, 0.5, -0.2])
    one = row(SamplingParams(temperature=0.0, repetition_penalty=1.5), (0, 1, 3), num_prompt=1)
    expected = transformers.RepetitionPenaltyLogitsProcessor(1.5)(torch.tensor([[0, 1, 3]]), logits[None].clone())[0]
    changed = logits[None].clone()
    sample(changed, [one], OPS)
    torch.testing.assert_close(changed[0], expected)
    assert choose(logits, one) == 2


def test_presence_and_frequency_count_the_output_only() -> None:
    params = SamplingParams(temperature=0.0, presence_penalty=0.5, frequency_penalty=0.25)
    changed = torch.zeros(1, 5)
    sample(changed, [row(params, (0, 0, 1, 2, 2, 2), num_prompt=2)], OPS)
    assert changed[0].tolist() == [0.0, -0.75, -1.25, 0.0, 0.0]


def test_logit_bias_moves_the_choice() -> None:
    assert choose(logits_of(SHARES), row(SamplingParams(temperature=0.0, logit_bias={3: 5.0}))) == 3
    assert choose(logits_of(SHARES), row(SamplingParams(temperature=0.0, logit_bias={0: -100.0}))) == 1


def test_stop_ids_are_forbidden_until_the_minimum_length() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=2)
    stops = frozenset({0})
    assert choose(logits_of(SHARES), row(params, (4,), stop_ids=stops)) == 1
    assert choose(logits_of(SHARES), row(params, (4, 4), stop_ids=stops)) == 1
    assert choose(logits_of(SHARES), row(params, (4, 4, 4), stop_ids=stops)) == 0


def mixed_rows(count: int) -> list[Row]:
    kinds = [
        SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_p=0.9), SamplingParams(top_k=40),
        SamplingParams(temperature=0.7, min_p=0.05, repetition_penalty=1.2), SamplingParams(top_p=0.999),
    ]  # fmt: skip
    return [row(kinds[i % len(kinds)], (1, 2, i), seed=i, id=i) for i in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_gets_the_same_token_in_any_batch(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    logits = (torch.randn(24, 2000) * 3).bfloat16().to(dtype)
    rows = mixed_rows(24)
    together = sample(logits.clone(), rows, OPS).tokens
    alone = [sample(logits[i : i + 1].clone(), [rows[i]], OPS).tokens[0] for i in range(24)]
    order = list(reversed(range(24)))
    turned = sample(logits[order].clone(), [rows[i] for i in order], OPS).tokens
    assert together == alone == turned[::-1]
    assert len(set(together)) > 10


def test_noise_differs_by_seed_sample_and_position() -> None:
    drawn = {uniform(seed, index, position) for seed in range(10) for index in range(10) for position in range(10)}
    assert len(drawn) == 1000 and all(0 <= u < 1 for u in drawn)
    assert uniform(-1, 0, 0) == uniform(2**64 - 1, 0, 0)
    mean = sum(drawn) / 1000
    assert abs(mean - 0.5) < 4 / math.sqrt(12 * 1000)


def test_siblings_draw_different_noise() -> None:
    rows = [row(SamplingParams(n=8), sample_index=index, seed=5) for index in range(8)]
    assert len(set(sample(torch.zeros(8, 1000), rows, OPS).tokens)) > 5


def test_rows_that_are_not_numbers_are_reported_and_leave_the_others_alone() -> None:
    logits = logits_of(SHARES).repeat(6, 1)
    logits[1, 2], logits[3, 2], logits[4] = torch.nan, torch.inf, -torch.inf
    params = [SamplingParams(temperature=0.0), SamplingParams(), SamplingParams(top_p=0.5)] * 2
    chosen = sample(logits, [row(p) for p in params], OPS)
    assert chosen.bad == [1, 3, 4]
    assert chosen.tokens[0] == 0


def test_scores_come_from_the_raw_logits() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0, 3.0], [0.0, 0.0, 5.0, 0.0]])
    first, second = score(logits, [3, 2], [2, 0])
    logprobs = logits.log_softmax(-1)
    assert (first.token, first.logit, first.rank) == (3, 3.0, 2)
    assert first.logprob == pytest.approx(logprobs[0, 3].item())
    assert [token for token, _ in first.top] == [1, 3]
    assert first.top[0][1] == pytest.approx(logprobs[0, 1].item())
    assert (second.token, second.rank, second.top) == (2, 1, ())


def test_scores_of_many_rows_take_little_memory_beside_their_logits_and_no_other_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # each has a row at least
    logits = torch.randn(100, 50_000, generator=torch.Generator().manual_seed(1))
    tokens = list(range(100))
    with Largest() as seen:
        scores = score(logits, tokens, [3] * 100)
    assert seen.most <= 2**20 < logits.numel()
    assert scores == [score(logits[i : i + 1], [i], [3])[0] for i in tokens]


def test_scores_of_more_tokens_than_the_vocabulary_stop_at_it() -> None:
    (only,) = score(torch.zeros(1, 3), [0], [10])
    assert len(only.top) == 3


def test_which_of_several_equal_tokens_are_told_does_not_depend_on_what_others_want() -> None:
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(0)).round()
    tokens, num_top = [4, 0, 9, 4999, 7, 1], [3, 400, 3, 20, 0, 4000]
    alone = [score(logits[i : i + 1], [tokens[i]], [num_top[i]])[0] for i in range(6)]
    assert score(logits, tokens, num_top) == alone


def test_ranks_of_many_rows_are_those_of_each() -> None:
    logits = torch.randn(70, 50, generator=torch.Generator().manual_seed(3))
    own = logits[:, 7:8]
    assert count_above(logits, own)[:, 0].tolist() == [(row > row[7]).sum().item() for row in logits]
