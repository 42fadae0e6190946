"""Scheduling never changes a request's tokens: random small worlds on the ledger runner, under every rule.

`python tests/simulation/nightly.py` runs many more.
"""

import itertools

import pytest

from chairlift.config.options.rules import RULE_KINDS, parameters
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from fakes.worlds.draws import PARAMETERS, random_world


@pytest.mark.sampled(8)
@pytest.mark.parametrize("block", range(15))
def test_every_request_of_a_random_world_gets_the_tokens_it_would_get_alone(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        random_world(seed).run()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policy", POLICIES)
def test_so_it_does_under_every_combination_of_rules(policy: str) -> None:
    for i, (prefill, admission) in enumerate(itertools.product(PREFILLS, ADMISSIONS)):
        for seed in range(3 * i, 3 * i + 3):
            random_world(seed, policy, prefill, admission).run()


@pytest.mark.parametrize(("seed", "policy"), [(500067, "fair-share")])  # what yielded was admitted again at once
def test_worlds_end_that_once_did_not(seed: int, policy: str) -> None:
    random_world(seed, policy).run()


@pytest.mark.nightly
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.nightly) for block in range(1, 6))])
def test_thousands_more_worlds(block: int) -> None:
    for seed in range(10_000 + 600 * block, 10_600 + 600 * block):
        random_world(seed).run()


@pytest.mark.parametrize(
    ("name", "rule"),
    [pair for option in ("policy", "prefill", "admission") for pair in RULE_KINDS[option].known.items()],
)
def test_every_parameter_of_a_rule_is_varied(name: str, rule: type) -> None:
    missing = parameters(rule).keys() - PARAMETERS.get(name, {}).keys()
    assert not missing, f"add {name} to PARAMETERS in tests/fakes/worlds/draws.py, with values of {sorted(missing)}"


def test_a_new_policy_takes_its_share_of_the_seeds_and_moves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    was = [random_world(seed).about["policy"] for seed in range(300)]
    monkeypatch.setitem(POLICIES, "a-new-one", POLICIES["fcfs"])
    now = [random_world(seed).about["policy"] for seed in range(300)]
    assert 10 < now.count("a-new-one") < 60
    assert all(new in (old, "a-new-one") for old, new in zip(was, now, strict=True))
