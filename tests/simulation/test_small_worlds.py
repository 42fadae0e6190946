"""Scheduling never changes a request's tokens: random small worlds on the ledger runner."""

import pytest

from fakes.world import random_world


@pytest.mark.parametrize("block", range(20))
def test_every_request_of_a_random_world_gets_the_tokens_it_would_get_alone(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        try:
            random_world(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.slow
def test_ten_thousand_more_worlds() -> None:
    for seed in range(10_000, 20_000):
        try:
            random_world(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
