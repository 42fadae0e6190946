"""Steps that do not fit the runner's memory cost no request a token: random worlds in which that happens at random."""

import pytest

from chairlift.core.events import Finished, Shrunk
from chairlift.core.request import FinishReason
from fakes.full_world import full_world
from fakes.world import World


def run(seed: int, least: int = 2, share: float = 0.25) -> World:
    world = full_world(seed, least, share)
    try:
        world.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "block", [*range(2), *(pytest.param(block, marks=pytest.mark.nightly) for block in range(2, 10))]
)
def test_every_request_gets_the_tokens_it_would_get_alone(block: int) -> None:
    worlds = [run(seed) for seed in range(block * 60, block * 60 + 60)]
    assert sum(isinstance(event, Shrunk) for world in worlds for event in world.events) > 100
    failed = [e for w in worlds for e in w.events if isinstance(e, Finished) and e.finish is FinishReason.ERROR]
    assert failed == []


def test_a_request_that_fits_no_step_fails_alone_and_the_others_finish() -> None:
    ends = [
        event.finish
        for seed in range(150)
        for event in run(seed, least=1, share=0.1).events
        if isinstance(event, Finished)
    ]
    assert ends.count(FinishReason.ERROR) > 10


@pytest.mark.slow
def test_the_steps_that_fit_are_found() -> None:
    for seed in range(150):
        world = run(seed, least=3, share=1.0)
        assert not any(isinstance(e, Finished) and e.finish is FinishReason.ERROR for e in world.events)


@pytest.mark.nightly
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.nightly) for block in range(1, 10))])
def test_thousands_more_worlds(block: int) -> None:
    for seed in range(20_000 + 300 * block, 20_300 + 300 * block):
        run(seed, least=1 + seed % 3, share=(0.1, 0.25, 0.5)[seed % 3])
