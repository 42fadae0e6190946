"""A trial of a routing rule on a handful of requests, before anything real depends on it."""

from chairlift.core.routing.router import Router
from chairlift.core.routing.routing import Routing

_SPAN = 2


def failure(router: Router) -> str | None:
    """What goes wrong with this rule, or None. Rules keep state, so it cannot be used afterwards."""
    routing = Routing(router, count=4, span=_SPAN)
    for replica in range(3):
        routing.begin(replica)
    for i in range(16):
        if i == 8:
            routing.end(1)
        routing.route((i % 3,) * (1 + i % 7), "", ("", "a", "b")[i % 3], routing.replicas.open)
        routing.tell(2, 10 * i, i, i // 4)
    return routing.failures[0] if routing.failures else None
