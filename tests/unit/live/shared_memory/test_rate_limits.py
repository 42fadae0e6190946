import multiprocessing
from pathlib import Path

import pytest

from chairlift.config.keys import ApiKey
from chairlift.live.shared_memory import rate_limits
from chairlift.live.shared_memory.rate_limits import RateLimits, make_rate_limits
from fakes.page_processes import take_many


@pytest.fixture
def page(tmp_path: Path) -> Path:
    make_rate_limits(tmp_path / "rates")
    return tmp_path / "rates"


def key(name: str = "a", requests: float | None = None, tokens: float | None = None) -> ApiKey:
    return ApiKey(name, b"", requests, tokens)


def test_a_minutes_worth_can_be_taken_at_once_and_then_comes_evenly(page: Path) -> None:
    found, alice = RateLimits(page), key(requests=6)
    assert [found.take(alice, 1, 0, 100.0) for _ in range(6)] == [0.0] * 6
    assert found.take(alice, 1, 0, 100.0) == pytest.approx(10.0)
    assert found.take(alice, 1, 0, 105.0) == pytest.approx(5.0)
    assert found.take(alice, 1, 0, 110.0) == 0.0
    assert found.take(alice, 1, 0, 110.0) > 0


def test_the_answers_tokens_count_when_they_are_there(page: Path) -> None:
    found, alice = RateLimits(page), key(tokens=600)
    assert found.take(alice, 1, 100, 100.0) == 0.0
    found.charge(alice, 700, 100.0)
    assert found.take(alice, 1, 50, 100.0) == pytest.approx((200 + 50) / 10)
    assert found.take(alice, 1, 50, 125.0) == 0.0


def test_looking_says_when_something_is_left_and_takes_nothing(page: Path) -> None:
    found, alice, bob = RateLimits(page), key(requests=2), key("b", tokens=0.5)
    assert [found.look(alice, 100.0) for _ in range(5)] == [0.0] * 5
    assert [found.take(alice, 1, 0, 100.0) for _ in range(2)] == [0.0, 0.0]
    assert found.look(alice, 100.0) == pytest.approx(30.0)
    assert found.look(alice, 130.0) == 0.0
    assert found.look(bob, 100.0) == 0.0  # a limit below one a minute still allows one
    assert found.look(key("c"), 100.0) == 0.0


def test_what_is_refused_takes_nothing(page: Path) -> None:
    found, alice = RateLimits(page), key(requests=60, tokens=600)
    assert found.take(alice, 1, 600, 100.0) == 0.0
    assert found.take(alice, 1, 300, 100.0) == pytest.approx(30.0)
    assert [found.take(alice, 1, 0, 100.0) for _ in range(59)] == [0.0] * 59


def test_a_prompt_beyond_the_whole_allowance_waits_for_a_full_bucket(page: Path) -> None:
    found, alice = RateLimits(page), key(tokens=600)
    assert found.take(alice, 1, 10_000, 100.0) == 0.0
    assert found.take(alice, 1, 1, 200.0) > 0


def test_keys_have_buckets_of_their_own(page: Path) -> None:
    found = RateLimits(page)
    assert found.take(key("a", requests=1), 1, 0, 100.0) == 0.0
    assert found.take(key("a", requests=1), 1, 0, 100.0) > 0
    assert found.take(key("b", requests=1), 1, 0, 100.0) == 0.0
    assert found.take(key("c"), 1, 10**9, 100.0) == 0.0


def test_of_too_many_keys_the_one_used_longest_ago_is_forgotten(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "NUM_SLOTS", 2)
    make_rate_limits(page)
    found = RateLimits(page)
    for at, name in enumerate("abc"):
        assert found.take(key(name, requests=1), 1, 0, 100.0 + at) == 0.0
    assert found.take(key("b", requests=1), 1, 0, 103.0) > 0
    assert found.take(key("a", requests=1), 1, 0, 103.0) == 0.0


def test_front_ends_share_one_allowance(page: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert sum(pool.starmap(take_many, [(page, key(requests=100), 80)] * 3)) == 100
