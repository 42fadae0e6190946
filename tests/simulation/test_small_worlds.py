"""Scheduling never changes a request's tokens: random small worlds on the ledger runner, under every rule.

`python tests/simulation/nightly.py` runs many more.
"""

import itertools
from typing import Any

import pytest

from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from fakes.world import random_world


def run(seed: int, **rules: Any) -> None:
    try:
        random_world(seed, **rules).run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed} {rules}: {error}") from error


@pytest.mark.parametrize("block", range(15))
def test_every_request_of_a_random_world_gets_the_tokens_it_would_get_alone(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        run(seed)


@pytest.mark.parametrize("policy", POLICIES)
def test_so_it_does_under_every_combination_of_rules(policy: str) -> None:
    for i, (prefill, admission) in enumerate(itertools.product(PREFILLS, ADMISSIONS)):
        for seed in range(3 * i, 3 * i + 3):
            run(seed, policy=policy, prefill=prefill, admission=admission)


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.nightly) for block in range(1, 6))])
def test_thousands_more_worlds(block: int) -> None:
    for seed in range(10_000 + 600 * block, 10_600 + 600 * block):
        run(seed)
