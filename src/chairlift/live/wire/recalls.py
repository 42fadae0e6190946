"""Calls requests back that wait in a replica and had better wait in another (`core/routing/rebalancing.py`).

Always: a request is called back once, and only before anything was made of it. The engine answers: it has let go of the
request (`Moved`), or keeps it because it has begun (`Kept`).
"""

import time
from collections.abc import Callable, Iterable
from functools import partial

from chairlift.core.routing.rebalancing import Rebalancing, Waiting
from chairlift.core.routing.routing import Routing
from chairlift.live.wire import messages
from chairlift.live.wire.generation import Generation

# Replicas that may take a request without tokens which began with this fingerprint; bits.
Takers = Callable[[str | None], int]


class Recalls:
    def __init__(self, routing: Routing, takers: Takers, send: Callable[[int, messages.Recall], None]) -> None:
        self._rebalancing = Rebalancing(routing)
        self._takers = takers
        self._send = send

    def look(self, replica: int, info: messages.EngineInfo, generations: Iterable[Generation]) -> None:
        """At a replica that has told its load. `generations`: all of this front end, as they were sent."""
        among = partial(self._takers, info.fingerprint)
        if not self._rebalancing.is_due(replica, info.limits.max_step_tokens, among, time.monotonic()):
            return
        there = [each for each in generations if each.replica == replica and not each.num_made]
        waiting = [each for each in there if not each.was_recalled and each.may_move]
        recalled = [len(each.prompt) for each in there if each.recalled_to is not None]

        def find(index: int) -> Waiting:
            each, attributes = waiting[index], waiting[index].attributes
            takers = self._takers(each.fingerprint)
            return Waiting(each.prompt, attributes.prefix_root, attributes.user, attributes.adapter, takers)

        share = self._rebalancing.share(replica, [len(each.prompt) for each in there])
        lengths = [len(each.prompt) for each in waiting]
        for index, target in self._rebalancing.to_recall(replica, among(), share, lengths, find, recalled):
            waiting[index].recalled_to, waiting[index].was_recalled = target, True
            self._send(replica, messages.Recall(waiting[index].key))
