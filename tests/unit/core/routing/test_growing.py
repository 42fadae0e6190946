"""Replicas that come while a router runs: it routes as one that knew them from the start."""

import random

import pytest

from chairlift.core.packed import packed
from chairlift.core.routing.news import PrefixChanges
from chairlift.core.routing.prefixes import span_hashes
from chairlift.core.routing.router import Router
from chairlift.core.routing.routing import Routing
from chairlift.core.routing.rules import ByUser, LeastLoaded, Prefix


@pytest.mark.parametrize("rule", [LeastLoaded, Prefix, ByUser])
@pytest.mark.parametrize("count", [3, 40])
def test_a_grown_router_uses_all_replicas(rule: type[Router], count: int) -> None:
    routing = Routing(rule(), 0, span=4)
    for _ in range(count):
        routing.grow()
        routing.begin(routing.replicas.count - 1)
    rng, everyone = random.Random(1), (1 << count) - 1
    chosen = [routing.route([rng.randrange(9) for _ in range(9)], "", str(i), everyone) for i in range(60 * count)]
    assert set(chosen) == set(range(count))
    assert routing.failures == []


def test_a_replica_that_came_late_is_found_by_its_prefixes() -> None:
    routing = Routing(Prefix(), 1, span=4)
    routing.begin(0)
    routing.grow()
    routing.begin(1)
    prompt = list(range(400))
    routing.learn_whole(1, PrefixChanges(1, list(span_hashes(packed(prompt), 4, "")), []))
    routing.tell(1, 100, 0, 0)  # though its queue is longer
    assert routing.route(prompt, "", "", 0b11) == 1
