"""Suspects run by themselves, each until it has made a token; the others wait and get their tokens all the same."""

import random

import pytest

from chairlift.core.params import SamplingParams
from chairlift.live.recovery.quarantine import Quarantine
from chairlift.live.wire.messages import Abort, Output, Submit
from fakes.ledger import expected
from fakes.requests import make_samples
from fakes.submits import submit
from fakes.switchboards import VOCAB_SIZE, ledger_switchboard

HERE, THERE = b"here", b"there"


class Watched:
    """A quarantine, with its outputs and the requests of each step."""

    def __init__(self, depth: int = 1) -> None:
        self.switchboard = ledger_switchboard()
        self.switchboard.engine.runner.depth = depth  # type: ignore[misc]
        self.quarantine = Quarantine(self.switchboard)
        self.heard: list[tuple[bytes, Output]] = []
        self.together: list[set[tuple[bytes, int]]] = []  # the requests in flight, at each step

    def step(self) -> None:
        before = len(self.switchboard.engine.runner.plans)  # type: ignore[attr-defined]
        news = self.quarantine.step()
        plans = self.switchboard.engine.runner.plans[before:]  # type: ignore[attr-defined]
        steps = [self.switchboard.recipients.keys_of(chunk.request.id for chunk in plan.chunks) for plan in plans]
        self.together += [{(to, key) for to, keys in found.items() for key in keys} for found in steps]
        self.heard += [(to, output) for to, outputs in news.items() for output in outputs]

    def run(self) -> None:
        for _ in range(2000):
            if not self.quarantine.has_work:
                return
            self.step()
        raise AssertionError("the work does not end")

    def tokens(self, front_end: bytes, key: int, sample: int = 0) -> list[int]:
        found = [o for to, o in self.heard if (to, o.key, o.sample) == (front_end, key, sample)]
        return [o.token for o in found if o.token is not None]


def ask(key: int, *, n: int = 1, num_alone: int | None = None, max_tokens: int = 12) -> Submit:
    return submit(key, [key, 3, 4], SamplingParams(max_tokens=max_tokens, n=n, seed=key), num_alone=num_alone)


def wanted(message: Submit) -> list[list[int]]:
    params = message.params
    samples = make_samples(1, message.prompt, params.num_samples, params.max_tokens or 0, seed=params.seed or 0)
    return [expected(request, VOCAB_SIZE) for request in samples]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_suspect_shares_no_step_until_it_has_made_a_token(depth: int) -> None:
    watched = Watched(depth)
    first, late, suspect, other = ask(1), ask(2, n=2), ask(3, num_alone=0), ask(4, n=2, num_alone=1)
    watched.quarantine.submit(HERE, first)
    for _ in range(3):
        watched.step()
    start = len(watched.together)
    watched.quarantine.submit(HERE, suspect)
    watched.quarantine.submit(THERE, other)
    watched.quarantine.submit(THERE, late)
    assert watched.quarantine.num_held == 4
    while not watched.tokens(THERE, 4):
        watched.step()
        assert len(watched.tokens(HERE, 3)) <= 1 + depth
    assert all(len(group) <= 1 for group in watched.together[start:])
    watched.run()
    assert any(len(group) == 4 for group in watched.together)
    for front_end, message in ((HERE, first), (THERE, late), (HERE, suspect), (THERE, other)):
        got = [watched.tokens(front_end, message.key, i) for i in range(message.params.num_samples)]
        assert got == wanted(message)
    assert watched.switchboard.engine.scheduler.pool.num_free == 256


def test_an_engine_makes_a_token_of_its_own_before_the_first_suspect_and_sends_it_nowhere() -> None:
    watched = Watched()
    for key in (1, 2):
        watched.quarantine.submit(HERE, ask(key, num_alone=0, max_tokens=2))
        watched.run()
    prompts = [[chunk.request.prompt for chunk in plan.chunks] for plan in watched.switchboard.engine.runner.plans]  # type: ignore[attr-defined]
    assert prompts[0] == [(0,)]
    assert all((0,) not in step for step in prompts[1:])
    assert {to for to, _ in watched.heard} == {HERE}


def test_a_suspect_that_was_never_alone_in_a_fatal_step_goes_first() -> None:
    watched = Watched()
    for message in (ask(1, num_alone=1), ask(2, num_alone=0), ask(3, num_alone=1), ask(4, num_alone=0)):
        watched.quarantine.submit(HERE, message)
    watched.run()
    firsts = list(dict.fromkeys(output.key for _, output in watched.heard))
    assert firsts == [2, 4, 1, 3]


def test_suspects_that_are_aborted_or_whose_front_end_leaves_hold_no_other_up() -> None:
    watched = Watched()
    innocent = ask(1, n=2)
    watched.quarantine.submit(HERE, innocent)
    watched.quarantine.submit(HERE, ask(2, num_alone=0))
    watched.quarantine.submit(THERE, ask(3, num_alone=0))
    watched.quarantine.abort(HERE, Abort(2))
    watched.quarantine.abort(HERE, Abort(1, sample=0))
    watched.quarantine.drop(THERE)
    assert watched.quarantine.num_held == 1
    watched.run()
    assert watched.tokens(HERE, 1, 1) == wanted(innocent)[1]
    assert {(to, output.key, output.sample) for to, output in watched.heard} == {(HERE, 1, 1)}


def test_a_search_runs_alone_to_its_end() -> None:
    watched = Watched()
    search = submit(1, [1, 2], SamplingParams(max_tokens=5, beam_width=2, seed=1), num_alone=0)
    watched.quarantine.submit(HERE, search)
    watched.quarantine.submit(HERE, ask(2))
    watched.run()
    assert all(len(group) <= 1 for group in watched.together)
    assert next(output.key for _, output in watched.heard) == 1
    assert watched.tokens(HERE, 2) == wanted(ask(2))[0]


@pytest.mark.parametrize("seed", range(20))
def test_random_suspects_cost_no_request_a_token(seed: int) -> None:
    rng, watched = random.Random(seed), Watched(depth=1 + seed % 2)
    messages = [
        ask(i, n=rng.randint(1, 3), num_alone=rng.choice([None, None, 0, 1]), max_tokens=rng.randint(1, 15))
        for i in range(12)
    ]
    for message in messages:
        watched.quarantine.submit(HERE, message)
        for _ in range(rng.randint(0, 3)):
            watched.step()
    watched.run()
    for message in messages:
        got = [watched.tokens(HERE, message.key, i) for i in range(message.params.num_samples)]
        assert got == wanted(message)
    assert watched.switchboard.engine.scheduler.pool.num_free == 256
