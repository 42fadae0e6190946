"""What replicas are told of each other's users."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from chairlift.core.events import Admitted, Token
from chairlift.core.policies.fair_share import FairShare
from chairlift.core.policy import Service
from chairlift.core.request import FinishReason, Progress
from chairlift.core.routing.service import FleetService, ServedWork
from fakes.requests import make_request, make_samples


@pytest.mark.parametrize("seed", range(20))
def test_a_replica_is_told_what_all_others_have_served_and_nothing_of_its_own(seed: int) -> None:
    rng = random.Random(seed)
    fleet, count = FleetService(), rng.randint(1, 4)
    served = [Counter[tuple[str, str]]() for _ in range(count)]
    told = [Counter[tuple[str, str]]() for _ in range(count)]
    for _ in range(20):
        for _ in range(rng.randrange(8)):
            replica, user = rng.randrange(count), rng.choice("abc")
            prompt, output = rng.randrange(3), rng.randrange(3)
            fleet.add(replica, Service(user, 1.0, prompt, output))
            served[replica] += Counter({(user, "prompt"): prompt, (user, "output"): output})
        for replica, services in fleet.take(range(count)).items():
            assert len({service.user for service in services}) == len(services)
            for service in services:
                told[replica] += Counter(
                    {(service.user, "prompt"): service.num_prompt, (service.user, "output"): service.num_output}
                )
    for replica in range(count):
        others = sum((served[i] for i in range(count) if i != replica), Counter[tuple[str, str]]())
        assert told[replica] == others


def push(policy: FairShare, id: int, user: str) -> None:
    request = make_request(id, [1, 2], 2, user=user)
    policy.push(Progress.of(request, float(id)), float(id))


def test_a_user_that_was_served_elsewhere_comes_after_one_that_was_not() -> None:
    policy = FairShare()
    push(policy, 1, "ann")
    push(policy, 2, "bob")
    assert policy.first(0.0) == 1
    policy.served_elsewhere([Service("ann", 1.0, 10, 5)])
    assert policy.first(0.0) == 2


def test_a_weight_that_was_told_counts() -> None:
    policy = FairShare()
    push(policy, 1, "ann")
    push(policy, 2, "bob")
    policy.served_elsewhere([Service("ann", 4.0, 100, 0), Service("bob", 1.0, 30, 0)])
    assert policy.first(0.0) == 1


def test_an_idle_user_saves_nothing_up_while_another_is_served_elsewhere() -> None:
    """Ann uses other replicas for an hour; then bob comes here, and ann too: bob is not an hour ahead."""
    policy = FairShare()
    for _ in range(3600):
        policy.served_elsewhere([Service("ann", 1.0, 0, 100)])
    push(policy, 1, "bob")
    push(policy, 2, "ann")
    policy.served_elsewhere([Service("bob", 1.0, 0, 10)])
    assert policy.first(0.0) == 2


def test_an_engine_tells_a_prompt_with_its_first_token_and_each_sample_s_tokens() -> None:
    work = ServedWork()
    first, second = make_samples(1, [5] * 9, 2, user="ann")
    moved = replace(make_request(3, [5] * 9, user="bob"), output=(7,))  # its prompt was told where it came from
    work.added((first, second), 0.0)
    work.added((moved,), 0.0)
    work.happened([Admitted(first.id, 1.0, num_cached=4)])
    assert work.take() == []
    work.happened([Token(id, 2.0, 7) for id in (first.id, second.id, moved.id)])
    assert work.take() == [Service("ann", 1.0, 5, 2), Service("bob", 1.0, 0, 1)]
    work.happened([Token(first.id, 3.0, 7, finish=FinishReason.LENGTH), Token(second.id, 3.0, 7)])
    work.happened([Token(first.id, 4.0, 7), Token(second.id, 4.0, 7)])  # the first has ended
    assert work.take() == [Service("ann", 1.0, 0, 3)]
