"""Names of prefixes that engines and routers agree on, and which replicas hold which, as far as a router was told.

A name is a 64-bit number for each span of a text, chained and salted. A span is some whole blocks, 256 tokens where a
block is smaller: hashing block by block would take a router longer than all else, and to compute a part of a span again
takes a replica little. An inverted index leads from these hashes to replicas.

Always: equal numbers mean, but for one case in 2^64, equal tokens from the first on under the same salt. An engine
never serves a token by them: its own index compares every token. Little-endian machines agree, whatever their Python.
A set of replicas is the bits of a number, so that a thousand replicas are compared at once: the first spans of a prompt
are looked up one after the other until no replica holds the next. Where a request was sent counts too, until its spans
are told of: a second request with the same prefix finds the first.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from chairlift.core.packed import TOKEN_BYTES

SPAN_TOKENS = 256
_HASH_BYTES = 8


def span_of(block_size: int) -> int:
    """Tokens of a span."""
    return max(1, SPAN_TOKENS // block_size) * block_size


def root_of(salt: str) -> bytes:
    """The hash before the first span."""
    return blake2b(salt.encode(), digest_size=_HASH_BYTES).digest()


def hash_after(before: bytes, span: bytes) -> bytes:
    """The hash of a span of packed tokens, given that of the span before."""
    return blake2b(span, digest_size=_HASH_BYTES, salt=before).digest()


def span_hashes(tokens: bytes, span: int, salt: str) -> list[bytes]:
    """Of every whole span of packed tokens that may be found in a cache: the last token is always computed."""
    before, width = root_of(salt), TOKEN_BYTES * span
    hashes = []
    for start in range(0, len(tokens) - width, width):
        before = hash_after(before, tokens[start : start + width])
        hashes.append(before)
    return hashes


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
