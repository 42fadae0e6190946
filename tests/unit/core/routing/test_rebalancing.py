"""Which requests leave a queue: the last, by the rule that routes, no more than makes loads equal."""

import random

import pytest

from chairlift.config.options.rules import make_router
from chairlift.core.errors import InvalidConfig
from chairlift.core.packed import packed
from chairlift.core.routing.news import PrefixChanges
from chairlift.core.routing.prefixes import span_hashes
from chairlift.core.routing.rebalancing import Rebalancing, Waiting
from chairlift.core.routing.replicas import Replicas, work
from chairlift.core.routing.router import Asked, Router
from chairlift.core.routing.routing import Routing

SPAN = 4
STEP_TOKENS = 8


def routing_of(router: str, queued: list[int]) -> Routing:
    routing = Routing(make_router(router), len(queued), SPAN)
    for replica, amount in enumerate(queued):
        routing.begin(replica)
        routing.tell(replica, amount, 0, 0)
    return routing


def recalled(
    routing: Routing, prompts: list[list[int]], replica: int = 0, before: tuple[int, ...] = (), among: int = -1
) -> list[int]:
    """Which of one front end's requests in a replica are to be called back. `before`: lengths of those that were."""
    waiting = [Waiting(prompt, "", "", 0, among & routing.replicas.open) for prompt in prompts]
    lengths = [len(prompt) for prompt in prompts]
    rebalancing = Rebalancing(routing)
    share = rebalancing.share(replica, [*lengths, *before])
    found = rebalancing.to_recall(replica, among, share, lengths, waiting.__getitem__, before)
    return [index for index, _ in found]


def test_the_last_leave_until_loads_are_equal() -> None:
    routing = routing_of("least-loaded", [100, 0])
    assert recalled(routing, [[i] * 10 for i in range(10)]) == [5, 6, 7, 8, 9]
    assert routing.replicas.queued == [100, 0]


def test_each_front_end_moves_its_part() -> None:
    routing = routing_of("least-loaded", [100, 0])
    assert recalled(routing, [[i] * 10 for i in range(4)]) == [2, 3]


def test_what_was_called_back_counts_as_gone() -> None:
    routing = routing_of("least-loaded", [100, 0])
    assert recalled(routing, [[i] * 10 for i in range(7)], before=(10, 10, 10)) == [5, 6]


def test_a_long_prompt_that_would_turn_the_scale_stays() -> None:
    routing = routing_of("least-loaded", [100, 0])
    assert recalled(routing, [[1] * 10, [2] * 30, [3] * 60]) == [0, 1]


def test_a_request_stays_where_its_prefix_is() -> None:
    routing = routing_of("prefix:weight=2", [100, 80])
    kept, other = [1] * 9, [2] * 9
    assert routing.learn(0, PrefixChanges(1, span_hashes(packed(kept), SPAN, ""), []))
    assert recalled(routing, [other, kept] * 7) == [12]


def test_long_prompts_are_hashed_a_few_at_a_time() -> None:
    routing = routing_of("prefix", [10**6, 0])
    assert recalled(routing, [[i] * 30_000 for i in range(9)]) == [7, 8]
    assert recalled(routing, [[i] * 90_000 for i in range(3)]) == [2]


def test_replicas_that_cannot_take_a_request_do_not_count() -> None:
    routing = routing_of("least-loaded", [100, 0, 60])
    rebalancing = Rebalancing(routing)
    assert rebalancing.is_due(0, 12, lambda: 0b111, 1.0)
    assert not rebalancing.is_due(0, 12, lambda: 0b101, 1.0)
    assert recalled(routing, [[i] * 10 for i in range(10)], among=0b101) == [8, 9]


@pytest.mark.parametrize("router", ["round-robin", "by-user", "prefix:rebalance=0", "least-loaded:rebalance=0"])
def test_other_rules_leave_requests_where_they_are(router: str) -> None:
    assert not Rebalancing(routing_of(router, [1000, 0])).is_due(0, STEP_TOKENS, lambda: 0b11, 1.0)


def test_a_rule_that_failed_leaves_them_too() -> None:
    class Broken(Router):
        def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
            raise KeyError

    routing = Routing(Broken(), 2, SPAN)
    for replica in range(2):
        routing.begin(replica)
    routing.route([1] * 1000, "", "", 1)
    assert routing.failures
    assert not Rebalancing(routing).is_due(0, STEP_TOKENS, lambda: 0b11, 1.0)


def test_a_replica_is_looked_at_now_and_then_and_only_far_above_another() -> None:
    routing = routing_of("prefix:rebalance=0.5", [8 * STEP_TOKENS, 0, 1])
    rebalancing = Rebalancing(routing)

    def is_due(replica: int, now: float) -> bool:
        return rebalancing.is_due(replica, STEP_TOKENS, lambda: 0b111, now)

    assert is_due(0, 1.0)
    assert not is_due(2, 1.0)
    rebalancing.to_recall(0, 0b111, 1.0, [], [].__getitem__)
    assert not is_due(0, 1.4)
    assert is_due(0, 1.5)
    routing.replicas.set_open(1, False)
    assert not is_due(0, 1.5)
    routing.replicas.set_open(0, False)
    assert not is_due(0, 1.5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("num_front_ends", [1, 2, 4, 8])
@pytest.mark.parametrize("router", ["prefix", "least-loaded"])
def test_front_ends_that_do_not_know_of_each_other_make_loads_equal_together(router: str, num_front_ends: int) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        count = rng.choice([2, 3, 8, 40])
        free = set(rng.sample(range(count), rng.randint(1, max(1, count // 3))))
        held: list[list[list[list[int]]]] = [[[] for _ in range(count)] for _ in range(num_front_ends)]
        for replica in range(count):
            for _ in range(rng.randint(0, 30) if replica in free else rng.randint(50, 70)):
                rng.choice(held)[replica].append([rng.randrange(9) for _ in range(rng.randint(20, 60))])
        before = [sum(work(len(prompt)) for own in held for prompt in own[replica]) for replica in range(count)]
        after = list(before)
        for own in held:
            routing = routing_of(router, before)
            rebalancing = Rebalancing(routing)
            among = routing.replicas.open
            for replica in range(count):
                waiting = [Waiting(prompt, "", "", 0, among) for prompt in own[replica]]
                lengths = [len(prompt) for prompt in own[replica]]
                share = rebalancing.share(replica, lengths)
                for index, target in rebalancing.to_recall(replica, among, share, lengths, waiting.__getitem__):
                    amount = work(lengths[index])
                    after[replica] -= amount
                    after[target] += amount
                    routing.replicas.add(target, amount)  # what it has sent since
        mean = sum(before) / count
        fullest = max(after[replica] for replica in free)
        assert fullest < 1.2 * mean
        assert all(after[replica] > 0.85 * mean for replica in set(range(count)) - free)
        assert max(after) <= max(before)


@pytest.mark.parametrize("given", ["0.01", "-1", "61"])
def test_a_period_out_of_range_is_refused(given: str) -> None:
    with pytest.raises(InvalidConfig, match="rebalance must be 0, or from 0.05 to 60 seconds"):
        make_router(f"prefix:rebalance={given}")
