"""The routing rules, and the routing around them."""

import random
from collections import Counter

import pytest

from chairlift.core.packed import packed
from chairlift.core.routing.news import PrefixChanges
from chairlift.core.routing.prefixes import span_hashes
from chairlift.core.routing.replicas import Replicas
from chairlift.core.routing.router import Asked, Router
from chairlift.core.routing.routing import Routing, failure
from chairlift.core.routing.rules import ROUTERS

SPAN = 4


def routing_of(name: str, count: int, seed: int = 0) -> Routing:
    routing = Routing(ROUTERS[name](), count, SPAN, seed)
    for replica in range(count):
        routing.begin(replica)
    return routing


def send(routing: Routing, tokens: list[int], user: str = "") -> int:
    return routing.route(tokens, "", user, routing.replicas.open)


def hold(routing: Routing, replica: int, tokens: list[int]) -> None:
    assert routing.learn(replica, PrefixChanges(1, span_hashes(packed(tokens), SPAN, ""), []))


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("seed", range(4))
def test_a_rule_names_an_open_replica_whatever_happens_and_repeats_itself(name: str, seed: int) -> None:
    def world() -> list[int]:
        rng = random.Random(seed)
        count = rng.choice([1, 2, 5, 100])
        routing, chosen, versions = routing_of(name, count, seed), [], [0] * count
        for _ in range(150):
            replica = rng.randrange(count)
            action = rng.random()
            if action < 0.1 and routing.replicas.open & ~(1 << replica):
                routing.end(replica)
            elif action < 0.2:
                routing.begin(replica)
                versions[replica] = 0
            elif action < 0.5:
                routing.tell(replica, rng.randrange(100), rng.randrange(5), rng.randrange(9))
            elif action < 0.6:
                versions[replica] += 1
                prompt = [rng.randrange(2) for _ in range(rng.randrange(30))]
                hashes = span_hashes(packed(prompt), SPAN, "")
                assert routing.learn(replica, PrefixChanges(versions[replica], hashes, hashes[:1]))
            prompt = [rng.randrange(2) for _ in range(rng.randint(1, 30))]
            chosen.append(send(routing, prompt, rng.choice(["", "a", "b"])))
            assert routing.replicas.open >> chosen[-1] & 1
        assert not routing.failures
        return chosen

    assert world() == world()


@pytest.mark.parametrize("name", ROUTERS)
def test_every_rule_passes_its_trial(name: str) -> None:
    assert failure(ROUTERS[name]()) is None


def test_round_robin_deals_evenly_and_skips_closed_ones() -> None:
    routing = routing_of("round-robin", 4)
    routing.end(2)
    assert [send(routing, [1]) for _ in range(6)] == [0, 1, 3, 0, 1, 3]


def test_a_prefix_draws_requests_until_its_queue_costs_more() -> None:
    routing = routing_of("prefix", 3)
    prompt = list(range(41))
    hold(routing, 1, prompt)
    routing.tell(1, 30, 0, 0)
    assert send(routing, prompt) == 1
    routing.tell(1, 50, 0, 1)
    assert send(routing, prompt) != 1


def test_requests_with_one_prefix_stay_together_before_anything_is_told() -> None:
    routing = routing_of("prefix", 8)
    prompt = list(range(400))
    first = send(routing, prompt)
    routing.tell(first, 0, 1, 1)
    assert send(routing, [*prompt, 7]) == first


def test_equal_replicas_get_equal_shares() -> None:
    routing = routing_of("prefix", 4)
    shares = Counter(send(routing, [i] * 8) for i in range(200))
    assert all(40 <= shares[replica] <= 60 for replica in range(4))


def test_a_user_stays_with_a_replica_and_few_move_when_one_goes() -> None:
    routing = routing_of("by-user", 5)
    users = [f"user {i}" for i in range(200)]
    before = {user: send(routing, [1], user) for user in users}
    assert before == {user: send(routing, [2], user) for user in users}
    assert len(set(before.values())) == 5
    routing.end(3)
    after = {user: send(routing, [1], user) for user in users}
    assert all(after[user] == where for user, where in before.items() if where != 3)


def test_what_was_sent_counts_until_the_replica_has_taken_it() -> None:
    routing = routing_of("least-loaded", 2)
    assert {send(routing, [1] * 50), send(routing, [1] * 50)} == {0, 1}
    routing.tell(0, 0, 0, 0)  # the word of a step that began before
    assert routing.replicas.queued == [50, 50]
    routing.tell(0, 20, 0, 1)
    assert routing.replicas.queued == [20, 50]


def test_missing_changes_are_noticed_and_the_whole_mends_them() -> None:
    routing = routing_of("prefix", 2)
    prompt = list(range(41))
    hashes = span_hashes(packed(prompt), SPAN, "")
    assert not routing.learn(1, PrefixChanges(2, hashes, []))
    routing.learn_whole(1, PrefixChanges(7, hashes, []))
    assert routing.learn(1, PrefixChanges(8, [], hashes[5:]))
    assert routing.replicas.prefixes.num_held(1) == 5


class Wrong(Router):
    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        return replicas.count


def test_a_rule_that_names_nonsense_is_replaced_and_loses_no_request() -> None:
    routing = Routing(Wrong(), 2, SPAN)
    routing.begin(1)
    assert [send(routing, [1]), send(routing, [1])] == [1, 1]
    assert len(routing.failures) == 1
    assert failure(Wrong()) is not None
