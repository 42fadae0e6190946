"""Which requests that wait in a replica had better wait in another, because more is known now than when they came.

    A and B have 30,000 tokens before them; C comes, with none  ->  the last of A and of B, 10,000 tokens each, go to C

A replica with much more before it than another is looked at now and then, and the last of its requests are routed anew
by the same rule, which sees them as cached where they are and so rather leaves them there. Always: a replica gives away
no more than it has above the mean, and each front end its own part of that, for none knows what the others give. Rules
that do not rebalance (`Router.rebalance`) move nothing. Knows no clock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from chairlift.core.routing.replicas import work
from chairlift.core.routing.routing import Routing

_LEAST_GAP = 8  # steps full of prompts: a request that moves waits for the end of a step there
_MAX_ROUTED = 16  # requests at a look
_MAX_TOKENS = 65_536  # of these: hashing takes some 0.1 us for each


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
        self._now = 0.0  # of the last look
        self._others: deque[tuple[float, int, int]] = deque()  # (until when, replica, work) that other front ends send

    def is_due(self, replica: int, step_tokens: int, among: Callable[[], int], now: float) -> bool:
        """Whether to look at a replica, because it has much more before it than another of `among`, those that may take
        its requests. To be asked at each word of it. `step_tokens`: the most of a step there."""
        replicas, gap = self._routing.replicas, _LEAST_GAP * step_tokens
        if not self._routing.rebalance_s or now < self._next.get(replica, 0.0) or replicas.load(replica) < gap:
            return False
        self._now = now
        takers = among() & replicas.open
        return bool(takers >> replica & 1) and replicas.load(replica) - replicas.least_load(takers) >= gap

    def share(self, replica: int, lengths: Iterable[int]) -> float:
        """What part of a replica's queue requests of so many tokens are."""
        return min(1.0, sum(map(work, lengths)) / max(1, self._routing.replicas.queued[replica]))

    def to_recall(
        self,
        replica: int,
        among: int,
        share: float,
        lengths: Sequence[int],
        find: Callable[[int], Waiting],
        recalled: Iterable[int] = (),
    ) -> list[tuple[int, int]]:
        """Which of a front end's requests had better go elsewhere, and where. `share`: of the queue that is its own.
        `lengths`: tokens of those that may, as they were sent; `find` describes one. `recalled`: of those called back
        before that are still there."""
        self._next[replica] = self._now + self._routing.rebalance_s
        while self._others and self._others[0][0] <= self._now:  # its word has it by now
            self._others.popleft()
        replicas = self._routing.replicas
        works = [work(length) for length in lengths]
        above = replicas.load(replica) - replicas.mean_load(among & replicas.open)
        room = share * above - sum(map(work, recalled))
        found: list[tuple[int, int]] = []
        num_routed, tokens_left = 0, _MAX_TOKENS
        with replicas.tried():
            for _, other, amount in self._others:
                replicas.add(other, amount)
            for index in reversed(range(len(works))):
                amount = works[index]
                if amount > room:
                    continue
                num_routed, tokens_left = num_routed + 1, tokens_left - lengths[index]
                if num_routed > _MAX_ROUTED or (tokens_left < 0 and num_routed > 1):
                    break
                replicas.add(replica, -amount)
                chosen = self._routing.choose(*find(index))
                if chosen == replica:
                    replicas.add(replica, amount)
                    continue
                by_others = round(amount / share) - amount  # they do likewise
                self._others.append((self._now + self._routing.rebalance_s, chosen, by_others))
                replicas.add(replica, -by_others)
                replicas.add(chosen, amount + by_others)
                room -= amount
                found.append((index, chosen))
        return found[::-1]
