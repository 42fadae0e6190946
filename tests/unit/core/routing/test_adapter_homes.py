"""Requests prefer replicas that have their adapter."""

from chairlift.core.routing.routing import Routing
from chairlift.core.routing.rules import LeastLoaded


def make() -> Routing:
    routing = Routing(LeastLoaded(), 3)
    for replica in range(3):
        routing.begin(replica)
    return routing


def test_requests_of_an_adapter_stay_where_it_is_until_that_is_much_busier() -> None:
    routing = make()
    first = routing.route(range(10), "", "", 0b111, adapter=7)
    assert [routing.route(range(10), "", "", 0b111, adapter=7) for _ in range(5)] == [first] * 5
    routing.tell(first, 100_000, 1, 6)
    second = routing.route(range(10), "", "", 0b111, adapter=7)
    assert second != first
    assert routing.route(range(10), "", "", 0b111, adapter=7) == second


def test_an_engine_that_starts_anew_has_none() -> None:
    routing = make()
    first = routing.route(range(10), "", "", 0b111, adapter=7)
    routing.begin(first)
    routing.tell(first, 500, 0, 0)
    assert routing.route(range(10), "", "", 0b111, adapter=7) != first
