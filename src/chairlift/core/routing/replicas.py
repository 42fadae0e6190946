"""What is known of each replica: its load, whether it takes requests, and the prefixes it holds.

Always: replicas are numbered from 0, and sets of them are the bits of a number. A load is in tokens: those to compute
before a new request's own, and a share for each running request, whose decodes slow prompts down. Knows no clock.

What computing a text takes, in tokens of a short one: attention makes the tokens of a long text dearer.
"""

import heapq
import math
import random
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from chairlift.core.routing.prefixes import KnownPrefixes

RUNNING_TOKENS = 32  # that a running request counts as
_FEW = 32  # replicas; among more not all are compared
_SOME = 16  # but so many
_MAX_OUTDATED = 8  # entries of the heap for each replica


class Replicas:
    def __init__(self, count: int, seed: int = 0) -> None:
        self.count = count
        self.open = 0  # that take requests; bits
        self.queued = [0] * count  # work, in tokens
        self.running = [0] * count
        self.prefixes = KnownPrefixes(count)
        self._loads = [math.inf] * count  # of closed ones infinite
        self._random = random.Random(seed)
        # (load, a random number, replica), the least first; outdated where the load is another.
        self._heap: list[tuple[float, float, int]] = []

    def grow(self) -> None:
        """One replica more, which takes no requests yet."""
        self.count += 1
        self.queued.append(0)
        self.running.append(0)
        self.prefixes.grow()
        self._loads.append(math.inf)
        if self.count > _FEW:
            self._rebuild()

    def load(self, replica: int) -> float:
        return self._loads[replica]

    def set_open(self, replica: int, is_open: bool) -> None:
        bit = 1 << replica
        self.open = self.open | bit if is_open else self.open & ~bit
        self._weigh(replica)

    def least_load(self, among: int) -> float:
        """Of open replicas."""
        if among == self.open and self.count > _FEW:
            return self._loads[self._lightest()]
        return min([self._loads[replica] for replica in members(among)])

    def mean_load(self, among: int) -> float:
        """Of open replicas."""
        return sum([self._loads[replica] for replica in members(among)]) / among.bit_count()

    def tell(self, replica: int, num_queued: int, num_running: int) -> None:
        self.queued[replica], self.running[replica] = num_queued, num_running
        self._weigh(replica)

    def add(self, replica: int, num_queued: int) -> None:
        """What was sent there, or taken from there, since it was told."""
        self.tell(replica, max(0, self.queued[replica] + num_queued), self.running[replica])

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Queues are afterwards as they were before."""
        before = list(self.queued)
        try:
            yield
        finally:
            for replica, queued in enumerate(before):
                if self.queued[replica] != queued:
                    self.tell(replica, queued, self.running[replica])

    def _weigh(self, replica: int) -> None:
        amount = self.queued[replica] + RUNNING_TOKENS * self.running[replica]
        load = amount if self.open >> replica & 1 else math.inf
        if load == self._loads[replica]:
            return
        self._loads[replica] = load
        if self.count > _FEW:
            heapq.heappush(self._heap, (self._loads[replica], self._random.random(), replica))
            if len(self._heap) > _MAX_OUTDATED * self.count:
                self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(load, self._random.random(), i) for i, load in enumerate(self._loads)]
        heapq.heapify(self._heap)

    def least_loaded(self, among: int) -> int:
        """The open replica of `among`, which is not empty, with the least load; of equal ones the better of two random
        choices. Of many replicas a random part is compared, and the least loaded of all."""
        loads = self._loads
        candidates = members(among) if among.bit_count() <= _FEW else [self._lightest()]
        if not among >> candidates[0] & 1:
            candidates = self._some(among)
        least = min([loads[replica] for replica in candidates])
        equal = [replica for replica in candidates if loads[replica] == least]
        if len(equal) > 2:
            equal = self._random.sample(equal, 2)
        return min(equal, key=lambda replica: self.running[replica])

    def _lightest(self) -> int:
        """Of all replicas, at random of equal ones."""
        while self._heap[0][0] != self._loads[self._heap[0][2]]:
            heapq.heappop(self._heap)
        return self._heap[0][2]

    def _some(self, among: int) -> list[int]:
        """A random part, neighbours in number."""
        start = self._random.randrange(self.count)
        after = members(among >> start << start, _SOME)
        return after or members(among, _SOME)


def members(bits: int, limit: int = 1 << 30) -> list[int]:
    """The lowest numbers of a set."""
    found: list[int] = []
    while bits and len(found) < limit:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


_CONTEXT = 32_768  # tokens; there a token takes twice as long as at the beginning, as with models of some 8B parameters


def work(num_tokens: int) -> int:
    """Of the first tokens of a text; the difference of two is that of the tokens between."""
    return num_tokens + num_tokens * num_tokens // (2 * _CONTEXT)


_MAX_ADAPTERS = 10_000
_BUSIER_TOKENS = 2048  # of load that reading and keeping another copy of an adapter is worth


class AdapterHomes:
    """Which replicas have read an adapter: a request goes to one of these, unless they are much busier than another.
    Known from the requests that were sent: a replica that has forgotten one meanwhile reads it again."""

    def __init__(self) -> None:
        self._homes: OrderedDict[int, int] = OrderedDict()  # bits of replicas, least recently used first

    def add(self, adapter: int, replica: int) -> None:
        self._homes[adapter] = self._homes.get(adapter, 0) | 1 << replica
        self._homes.move_to_end(adapter)
        if len(self._homes) > _MAX_ADAPTERS:
            self._homes.popitem(last=False)

    def clear(self, replica: int) -> None:
        """Another engine takes its place."""
        for adapter in self._homes:
            self._homes[adapter] &= ~(1 << replica)

    def among(self, adapter: int, among: int, replicas: Replicas) -> int:
        """Those of `among` that have the adapter, if they are not much busier than the others; else all."""
        homes = self._homes.get(adapter, 0) & among
        if not homes or homes == among:
            return among
        least = min(replicas.load(replica) for replica in members(among))
        near = [replica for replica in members(homes) if replicas.load(replica) <= least + _BUSIER_TOKENS]
        return sum(1 << replica for replica in near) or among
