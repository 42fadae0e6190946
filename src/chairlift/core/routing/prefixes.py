"""Which replicas hold which prefixes, as far as a router was told: an inverted index from hashes to replicas.

Always: a set of replicas is the bits of a number, so that a thousand replicas are compared at once. Hashes are chained:
the first spans of a prompt are looked up one after the other until no replica holds the next. Where a request was sent
counts too, until its spans are told of: a second request with the same prefix finds the first.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_EXPECTED = 1 << 18  # hashes of spans that were not told of yet


class Match(NamedTuple):
    num_spans: int
    replicas: int  # that hold exactly so many of the first spans; bits


class KnownPrefixes:
    def __init__(self, num_replicas: int) -> None:
        self._bits = [1 << replica for replica in range(num_replicas)]  # shared: most spans are held by one replica
        self._holders: dict[bytes, int] = {}
        self._held: list[set[bytes]] = [set() for _ in range(num_replicas)]
        self._expected: OrderedDict[bytes, int] = OrderedDict()  # the replica's bit, the oldest first

    def grow(self) -> None:
        """One replica more."""
        self._bits.append(1 << len(self._bits))
        self._held.append(set())

    @property
    def num_known(self) -> int:
        """Distinct spans."""
        return len(self._holders)

    def num_held(self, replica: int) -> int:
        return len(self._held[replica])

    def publish(self, replica: int, hashes: Iterable[bytes]) -> None:
        bit, holders, held = self._bits[replica], self._holders, self._held[replica]
        for each in hashes:
            before = holders.get(each)
            holders[each] = bit if before is None else before | bit
            held.add(each)
            if self._expected.get(each) == bit:
                del self._expected[each]

    def lose(self, replica: int, hashes: Iterable[bytes]) -> None:
        bit, holders, held = self._bits[replica], self._holders, self._held[replica]
        for each in hashes:
            if each not in held:
                continue
            held.remove(each)
            left = holders[each] & ~bit
            if left:
                holders[each] = left
            else:
                del holders[each]

    def clear(self, replica: int) -> None:
        """The replica is gone, or tells all anew."""
        self.lose(replica, list(self._held[replica]))
        bit = self._bits[replica]
        for each in [each for each, where in self._expected.items() if where == bit]:
            del self._expected[each]

    def expect(self, replica: int, hashes: Iterable[bytes]) -> None:
        """The replica will compute these."""
        bit, holders, expected = self._bits[replica], self._holders, self._expected
        for each in hashes:
            if not holders.get(each, 0) & bit:
                expected[each] = bit
                expected.move_to_end(each)
        while len(expected) > MAX_EXPECTED:
            expected.popitem(last=False)

    def match(self, hashes: Sequence[bytes], among: int) -> list[Match]:
        """How much of a prompt the replicas of `among` hold, each of them in one entry, the longest last."""
        found: list[Match] = []
        holders, expected = self._holders, self._expected
        left, depth = among, 0
        for each in hashes:
            there = (holders.get(each, 0) | expected.get(each, 0)) & left
            if there != left:
                found.append(Match(depth, left ^ there))
                left = there
                if not there:
                    return found
            depth += 1
        found.append(Match(depth, left))
        return found
