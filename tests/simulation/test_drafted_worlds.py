"""Drafts change no token, only when they come: random worlds whose tokens are guessed, well or badly."""

import pytest

from fakes.worlds.draws import cut_world, full_world, random_world


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(8))
def test_every_request_of_a_random_world_gets_the_tokens_it_would_get_alone(block: int) -> None:
    worlds = [random_world(seed, drafts=True).run() for seed in range(100 * block, 100 * block + 100)]
    num_drafts, num_accepted = (sum(getattr(w.runner, name) for w in worlds) for name in ("num_drafts", "num_accepted"))
    assert num_accepted > 500 and num_drafts - num_accepted > 300, "too few were right, or wrong, to show anything"


def test_tokens_come_in_fewer_steps() -> None:
    steps = {False: 0, True: 0}
    for seed in range(100):
        for drafts in steps:
            world = random_world(seed, drafts=drafts)
            world.arrivals, world.aborts = {0: next(iter(world.arrivals.values()))[:1]}, {}
            world.run()
            steps[drafts] += len(world.runner.plans)
    assert steps[True] < 0.9 * steps[False]


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(2))
def test_steps_that_do_not_fit_cost_no_request_a_token(block: int) -> None:
    num_accepted = 0
    for seed in range(60 * block, 60 * block + 60):
        world = full_world(seed, drafts=True).run()
        num_accepted += world.runner.num_accepted
    assert num_accepted > 200


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(3))
def test_a_request_that_is_cut_and_resumed_gets_the_tokens_it_would_get_alone(block: int) -> None:
    num_resumed = 0
    for seed in range(50 * block, 50 * block + 50):
        world = cut_world(seed, share=0.15, drafts=True).run()
        num_resumed += world.counts["resumed"]
    assert num_resumed > 50


@pytest.mark.nightly
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.nightly) for block in range(1, 6))])
def test_thousands_more_worlds(block: int) -> None:
    for seed in range(40_000 + 600 * block, 40_600 + 600 * block):
        random_world(seed, drafts=True).run()
