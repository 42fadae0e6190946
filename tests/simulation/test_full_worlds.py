"""Steps that do not fit the runner's memory cost no request a token: random worlds in which that happens at random."""

import pytest

from chairlift.core.events import Finished, Shrunk
from chairlift.core.request import FinishReason
from fakes.worlds.draws import full_world


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "block", [*range(2), *(pytest.param(block, marks=pytest.mark.nightly) for block in range(2, 10))]
)
def test_every_request_gets_the_tokens_it_would_get_alone(block: int) -> None:
    worlds = [full_world(seed).run() for seed in range(block * 60, block * 60 + 60)]
    assert sum(isinstance(event, Shrunk) for world in worlds for event in world.events) > 100
    failed = [e for w in worlds for e in w.events if isinstance(e, Finished) and e.finish is FinishReason.ERROR]
    assert failed == []


def test_a_request_that_fits_no_step_fails_alone_and_the_others_finish() -> None:
    ends = [
        event.finish
        for seed in range(150)
        for event in full_world(seed, least=1, share=0.1).run().events
        if isinstance(event, Finished)
    ]
    assert ends.count(FinishReason.ERROR) > 10


@pytest.mark.nightly
def test_the_steps_that_fit_are_found() -> None:
    for seed in range(150):
        world = full_world(seed, least=3, share=1.0).run()
        assert not any(isinstance(e, Finished) and e.finish is FinishReason.ERROR for e in world.events)


@pytest.mark.nightly
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.nightly) for block in range(1, 10))])
def test_thousands_more_worlds(block: int) -> None:
    for seed in range(20_000 + 300 * block, 20_300 + 300 * block):
        full_world(seed, least=1 + seed % 3, share=(0.1, 0.25, 0.5)[seed % 3]).run()
