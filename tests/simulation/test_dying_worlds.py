"""Which request is blamed when engines die: random worlds with poisoned requests and with kills from outside."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from chairlift.core.errors import ChairliftError
from chairlift.core.params import SamplingParams
from chairlift.live.wire.messages import Output
from fakes.dying_world import HARMS, POISON, DyingWorld
from fakes.heard import Heard
from fakes.ledger import expected, expected_beams
from fakes.requests import make_samples, make_search
from fakes.switchboards import VOCAB_SIZE

PLAIN = SamplingParams(max_tokens=12, seed=5)
SEARCH = SamplingParams(max_tokens=6, beam_width=2, n=2, seed=5)
LONG_PROMPT = [i % POISON for i in range(500)]  # two steps


def answer(prompt: list[int], params: SamplingParams) -> list[list[int]]:
    if params.beam_width:
        search = make_search(1, prompt, params.beam_width, params.max_tokens, seed=params.seed, n=params.n)
        return expected_beams(search[0], VOCAB_SIZE)
    samples = make_samples(1, prompt, params.num_samples, params.max_tokens, seed=params.seed)
    return [expected(request, VOCAB_SIZE) for request in samples]


def heard_tokens(heard: Heard, params: SamplingParams) -> list[list[int]]:
    found = [[output for output in heard.outputs if output.sample == i] for i in range(params.num_samples)]
    return [[output.token for output in outputs if output.token is not None] for outputs in found]


def error_of(heard: Heard) -> str | None:
    return next((output.error for output in heard.outputs if output.finish == "error"), None)


class After:
    """A request that is asked when another has its first token."""

    heard: Heard

    def __init__(self, first: Heard, ask: Callable[[], Heard]) -> None:
        self._first, self._ask = first, ask
        first.generation._listener = self

    def put(self, output: Output) -> None:
        self._first.generation._listener = self._first
        self._first.put(output)
        self.heard = self._ask()


def killed_in(*steps: int):
    """The engine is killed in these steps, counted over all engines."""
    count = iter(range(10**9))
    return lambda: next(count) in steps


@pytest.mark.parametrize(("prompt", "params"), [([1, 2], SEARCH), (LONG_PROMPT, PLAIN)])
def test_a_request_alone_in_engines_killed_from_outside_is_answered(
    tmp_path: Path, prompt: list[int], params: SamplingParams
) -> None:
    world = DyingWorld(tmp_path / "note", killed_in(1, 3, 6, 9))  # each time before it has made a token
    heard = Heard(world.clients[0], prompt, params)
    world.run()
    assert world.num_deaths == 4
    assert heard_tokens(heard, params) == answer(prompt, params)


def test_one_crash_among_kills_is_no_proof(tmp_path: Path) -> None:
    world = DyingWorld(tmp_path / "note", killed_in(1))
    heard = Heard(world.clients[0], [1, 2], SEARCH)
    world.note.begin(b"\x81\xc4\x03one\x91\x01")  # a step with this request alone, in an engine that crashed
    world.note.tell_end(was_killed=False)
    world.run()
    assert error_of(heard) is None
    assert heard_tokens(heard, SEARCH) == answer([1, 2], SEARCH)


@pytest.mark.parametrize("beside", [0, 3])
@pytest.mark.parametrize("token", HARMS)
def test_a_request_that_ends_every_engine_fails_alone(tmp_path: Path, beside: int, token: int) -> None:
    world = DyingWorld(tmp_path / "note")
    guilty = Heard(world.clients[0], [1, token, 2], PLAIN)
    others = [Heard(world.clients[i % 2], [i], PLAIN) for i in range(beside)]
    world.run()
    where, was_killed = HARMS[token]
    times = "5 times" if was_killed else "twice"
    assert f"ended the engine {times}, each time with nothing else" in (error_of(guilty) or "")
    assert [heard_tokens(each, PLAIN) for each in others] == [answer([i], PLAIN) for i in range(beside)]
    # A request that is being added is the only suspect; elsewhere it takes two deaths to tell which it was.
    assert world.num_deaths == (5 if was_killed else 2) + 2 * (beside > 0 and where != "taken in")


@pytest.mark.parametrize("token", HARMS)
def test_a_late_request_that_ends_every_engine_fails_alone(tmp_path: Path, token: int) -> None:
    world = DyingWorld(tmp_path / "note")
    others = [Heard(world.clients[i % 2], [i], PLAIN) for i in range(20)]
    late = After(others[0], lambda: Heard(world.clients[1], [1, token, 2], PLAIN))
    world.run()
    assert error_of(late.heard)
    assert [heard_tokens(each, PLAIN) for each in others] == [answer([i], PLAIN) for i in range(20)]


@pytest.mark.parametrize("token", HARMS)
def test_a_waiting_request_that_ends_every_engine_fails_alone(tmp_path: Path, token: int) -> None:
    world = DyingWorld(tmp_path / "note", max_running=2)
    params = SamplingParams(max_tokens=60, seed=5)
    others = [Heard(world.clients[i % 2], [i], params) for i in range(6)]
    guilty = Heard(world.clients[0], [1, token, 2], PLAIN)
    world.run()
    assert error_of(guilty)
    assert [heard_tokens(each, params) for each in others] == [answer([i], params) for i in range(6)]
    assert world.num_deaths <= (5 if HARMS[token][1] else 2) + 2


@pytest.mark.parametrize("token", HARMS)
def test_ten_poisoned_requests_ahead_of_twenty_others_fail_alone(tmp_path: Path, token: int) -> None:
    world = DyingWorld(tmp_path / "note")
    guilty = [Heard(world.clients[i % 2], [i, token], PLAIN) for i in range(10)]
    others = [Heard(world.clients[i % 2], [i], PLAIN) for i in range(20)]
    world.run()
    assert all(error_of(each) for each in guilty)
    assert [heard_tokens(each, PLAIN) for each in others] == [answer([i], PLAIN) for i in range(20)]


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("broken", ["taken in", "planned", "run", "committed"])
def test_an_engine_that_can_do_nothing_blames_no_request_and_is_given_up(
    tmp_path: Path, broken: str, count: int
) -> None:
    world = DyingWorld(tmp_path / "note", broken=broken)
    heard = [Heard(world.clients[i % 2], [i], PLAIN) for i in range(count)]
    with pytest.raises(ChairliftError, match="without any progress"):
        world.run()
    assert [each.outputs for each in heard] == [[]] * count


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_the_guilty_fail_and_the_others_are_answered(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)


@pytest.mark.nightly
def test_so_they_are_with_drafts(tmp_path: Path) -> None:
    num_accepted = 0
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        num_accepted += run(folder, seed, max_drafts=1 + seed % 4).num_accepted
    assert num_accepted > 50


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1050))
def test_more_worlds(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)


def run(tmp_path: Path, seed: int, max_drafts: int = 0) -> DyingWorld:
    rng, num_kills = random.Random(seed), iter(range(3))  # with two crashes, one less than a server is given up for
    share = rng.choice([0.0, 0.05, 0.2])
    world = DyingWorld(
        tmp_path / "note",
        lambda: rng.random() < share and next(num_kills, None) is not None,
        depth=1 + seed % 2,
        max_running=rng.choice([3, 64]),
        max_drafts=max_drafts,
    )
    guilty, others = [], []
    for _ in range(rng.randint(2, 14)):
        prompt = [rng.randrange(POISON) for _ in range(rng.choice([1, 3, 40, 300]))]
        params = rng.choice([PLAIN, SamplingParams(max_tokens=8, n=3, seed=7)] * 3 + [SEARCH])
        is_guilty = rng.random() < 0.3
        if is_guilty:
            prompt.insert(rng.randrange(len(prompt) + 1), rng.choice(list(HARMS)))
        heard = Heard(rng.choice(world.clients), prompt, params)
        (guilty if is_guilty else others).append((heard, prompt, params))
    world.run()
    assert all(error_of(heard) for heard, _, _ in guilty)
    for heard, prompt, params in others:
        assert heard_tokens(heard, params) == answer(prompt, params)
    return world
