"""Which requests leave a queue: the last, by the rule that routes, no more than makes loads equal."""

import random

import pytest

from chairlift.config.options.rules import make_router
from chairlift.core.errors import InvalidConfig
from chairlift.core.packed import packed
from chairlift.core.routing.hashes import span_hashes
from chairlift.core.routing.news import PrefixChanges
from chairlift.core.routing.rebalancing import Rebalancing, Waiting
from chairlift.core.routing.routing import Routing
from chairlift.core.routing.work import work

SPAN = 4
STEP_TOKENS = 8


def routing_of(router: str, queued: list[int]) -> Routing:
    routing = Routing(make_router(router), len(queued), SPAN)
    for replica, amount in enumerate(queued):
        routing.begin(replica)
        routing.tell(replica, amount, 0, 0)
    return routing


def leaving(routing: Routing, prompts: list[list[int]], replica: int = 0, under_way: tuple[int, ...] = ()) -> list[int]:
    among = routing.replicas.open
    waiting = [Waiting(prompt, "", "", 0, among) for prompt in prompts]
    lengths = [len(prompt) for prompt in prompts]
    return Rebalancing(routing).leaving(replica, lengths, waiting.__getitem__, under_way)


def test_the_last_leave_until_loads_are_equal() -> None:
    routing = routing_of("least-loaded", [100, 0])
    assert leaving(routing, [[i] * 10 for i in range(10)]) == [9, 8, 7, 6, 5]
    assert routing.replicas.queued == [100, 0]


def test_each_front_end_moves_its_part() -> None:
    routing = routing_of("least-loaded", [100, 0])
    assert leaving(routing, [[i] * 10 for i in range(4)]) == [3, 2]


def test_what_was_asked_to_leave_counts_as_gone() -> None:
    routing = routing_of("least-loaded", [100, 0])
    assert leaving(routing, [[i] * 10 for i in range(7)], under_way=(10, 10, 10)) == [6, 5]


def test_a_long_prompt_that_would_turn_the_scale_stays() -> None:
    routing = routing_of("least-loaded", [100, 0])
    assert leaving(routing, [[1] * 10, [2] * 30, [3] * 60]) == [1, 0]


def test_a_request_stays_where_its_prefix_is() -> None:
    routing = routing_of("prefix:weight=2", [100, 80])
    kept, other = [1] * 9, [2] * 9
    assert routing.learn(0, PrefixChanges(1, span_hashes(packed(kept), SPAN, ""), []))
    assert leaving(routing, [other, kept] * 7) == [12]


@pytest.mark.parametrize("router", ["round-robin", "by-user", "prefix:rebalance=0", "least-loaded:rebalance=0"])
def test_other_rules_leave_requests_where_they_are(router: str) -> None:
    assert not Rebalancing(routing_of(router, [1000, 0])).is_due(0, STEP_TOKENS, 1.0)


def test_a_replica_is_looked_at_now_and_then_and_only_far_above_another() -> None:
    routing = routing_of("prefix:rebalance=0.5", [4 * STEP_TOKENS, 0, 1])
    rebalancing = Rebalancing(routing)
    assert rebalancing.is_due(0, STEP_TOKENS, 1.0)
    assert not rebalancing.is_due(0, STEP_TOKENS, 1.4)
    assert rebalancing.is_due(0, STEP_TOKENS, 1.5)
    assert not rebalancing.is_due(2, STEP_TOKENS, 1.5)
    routing.replicas.set_open(1, False)
    assert not rebalancing.is_due(0, STEP_TOKENS, 2.0)
    routing.replicas.set_open(0, False)
    assert not rebalancing.is_due(0, STEP_TOKENS, 3.0)


@pytest.mark.parametrize("seed", range(40))
def test_no_replica_ends_with_more_than_the_fullest_had(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([2, 3, 40])
    prompts = [[rng.randrange(3) for _ in range(rng.randint(1, 60))] for _ in range(rng.randrange(40))]
    queued = [rng.randrange(300) for _ in range(count)]
    queued[0] = sum(work(len(prompt)) for prompt in prompts) + rng.randrange(100)
    routing = routing_of(rng.choice(["prefix", "least-loaded"]), queued)
    found = leaving(routing, prompts)
    assert routing.replicas.queued == queued
    assert found == sorted(set(found), reverse=True)
    amount = sum(work(len(prompts[index])) for index in found)
    assert amount <= max(0, queued[0] - min(queued)) / 2
    assert leaving(routing, prompts) == found or count > 2  # equal loads are drawn


@pytest.mark.parametrize("given", ["0.01", "-1", "61"])
def test_a_period_out_of_range_is_refused(given: str) -> None:
    with pytest.raises(InvalidConfig, match="rebalance must be 0, or from 0.05 to 60 seconds"):
        make_router(f"prefix:rebalance={given}")
