"""Requests survive their engine: random worlds in which it is lost at random moments, with all it held."""

import pytest

from fakes.worlds.draws import cut_world


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "block", [*range(4), *(pytest.param(block, marks=pytest.mark.nightly) for block in range(4, 10))]
)
def test_a_request_that_is_cut_and_resumed_gets_the_tokens_it_would_get_alone(block: int) -> None:
    seeds = range(block * 50, block * 50 + 50)
    assert sum(cut_world(seed, share=0.1).run().counts["resumed"] for seed in seeds) > 50


@pytest.mark.nightly
def test_so_it_does_when_most_engines_make_a_token_or_two() -> None:
    assert sum(cut_world(seed, share=0.4).run().counts["resumed"] for seed in range(100)) > 200


@pytest.mark.nightly
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.nightly) for block in range(1, 15))])
def test_thousands_more_worlds(block: int) -> None:
    for seed in range(30_000 + 200 * block, 30_200 + 200 * block):
        cut_world(seed, share=(0.05, 0.15, 0.3)[seed % 3]).run()
