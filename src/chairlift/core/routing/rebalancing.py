"""Which requests that wait in a replica had better wait in another, because more is known now than when they came.

    A has 20,000 tokens in its queue; B comes, with none    ->  the last of A's requests, 10,000 tokens at most, go to B

A replica with much more before it than another is looked at now and then, and the last of its requests are routed anew
by the same rule, as if each had just come. Several front ends each move their own part of the queue. Always: never more
than makes the loads equal, and nothing for a rule that does not rebalance (`Router.rebalance`). Knows no clock.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from chairlift.core.routing.routing import Routing
from chairlift.core.routing.work import work

_LEAST_GAP = 4  # steps full of prompts: a request that moves waits for the end of a step there
_MAX_ROUTED = 16  # requests at a look: a long prompt takes a millisecond to hash


class Waiting(NamedTuple):
    """A request that has not begun."""

    tokens: Sequence[int]
    salt: str
    user: str
    adapter: int
    among: int  # replicas that may take it; bits
    hashes: Sequence[bytes] = ()  # of its spans, if they were made


class Rebalancing:
    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._next: dict[int, float] = {}  # when to look at each replica again

    def is_due(self, replica: int, step_tokens: int, now: float) -> bool:
        """Whether to ask what had better leave a replica, whose steps have so many tokens at most. To be asked at each
        word of it."""
        period = self._routing.rebalance_s
        if not period or now < self._next.get(replica, 0.0):
            return False
        self._next[replica] = now + period
        return self._gap(replica) >= _LEAST_GAP * step_tokens

    def leaving(
        self, replica: int, lengths: Sequence[int], find: Callable[[int], Waiting], under_way: Iterable[int] = ()
    ) -> list[int]:
        """Which of a front end's requests had better go elsewhere, the last first. `lengths`: their tokens, as they
        were sent; `find` describes one. `under_way`: of those that were asked to leave and are still there."""
        replicas = self._routing.replicas
        works, asked = [work(length) for length in lengths], sum(map(work, under_way))
        share = min(1.0, (sum(works) + asked) / max(1, replicas.queued[replica]))
        room = share * self._gap(replica) / 2 - asked
        found: list[int] = []
        num_routed = 0
        with replicas.tried():
            for index in reversed(range(len(works))):
                amount = works[index]
                if amount > room or num_routed == _MAX_ROUTED:
                    continue
                num_routed += 1
                replicas.add(replica, -amount)
                chosen = self._routing.choose(*find(index))
                replicas.add(chosen, amount)
                if chosen != replica:
                    room -= amount
                    found.append(index)
        return found

    def _gap(self, replica: int) -> float:
        """How much more it has before it than another; nothing for one that takes no requests."""
        replicas = self._routing.replicas
        return replicas.load(replica) - replicas.least_load() if replicas.open >> replica & 1 else 0.0
