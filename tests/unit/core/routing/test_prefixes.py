"""The inverted index of prefixes against plain sets, in random small worlds."""

import random

import pytest

from chairlift.core.packed import packed
from chairlift.core.routing import prefixes
from chairlift.core.routing.prefixes import KnownPrefixes, span_hashes, span_of
from chairlift.core.routing.replicas import members

CHAINS = [[bytes([chain, depth]) for depth in range(6)] for chain in range(4)]


def longest(chain: list[bytes], held: set[bytes]) -> int:
    return next((depth for depth, each in enumerate(chain) if each not in held), len(chain))


@pytest.mark.parametrize("seed", range(30))
def test_a_match_is_what_looking_at_every_replica_finds(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 70)
    known, held = KnownPrefixes(count), [set[bytes]() for _ in range(count)]
    for _ in range(200):
        replica, chain = rng.randrange(count), rng.choice(CHAINS)
        some = chain[: rng.randint(0, 6)] if rng.random() < 0.7 else rng.sample(chain, 2)
        action = rng.random()
        if action < 0.6:
            known.publish(replica, some)
            held[replica].update(some)
        elif action < 0.9:
            known.lose(replica, some)
            held[replica].difference_update(some)
        else:
            known.clear(replica)
            held[replica].clear()
        among = rng.getrandbits(count) | 1
        found = {r: num for num, bits in known.match(chain, among) for r in members(bits)}
        assert found == {r: longest(chain, held[r]) for r in members(among)}
        assert known.num_known == len(set().union(*held))


def test_what_was_sent_counts_until_it_is_told_of() -> None:
    known, chain = KnownPrefixes(3), CHAINS[0]
    known.expect(1, chain)
    assert known.match(chain, 0b111) == [(0, 0b101), (6, 0b010)]
    known.publish(1, chain[:2])
    assert known.match(chain, 0b111)[-1] == (6, 0b010)
    known.clear(1)
    assert known.match(chain, 0b111) == [(0, 0b111)]


def test_expectations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MAX_EXPECTED", 6)
    known = KnownPrefixes(2)
    known.expect(0, CHAINS[0])
    known.expect(1, CHAINS[1])
    assert known.match(CHAINS[0], 0b11) == [(0, 0b11)]
    assert known.match(CHAINS[1], 0b11)[-1] == (6, 0b10)


def test_hashes_are_chained_and_salted_and_leave_the_last_token_out() -> None:
    text = list(range(9))
    first = span_hashes(packed(text), 4, "")
    assert len(first) == 2
    assert span_hashes(packed(text[:8]), 4, "") == first[:1]
    assert span_hashes(packed([*text[:4], 0, 0, 0, 0, 1]), 4, "")[0] == first[0]
    assert not set(span_hashes(packed([1, *text[1:]]), 4, "")) & set(first)
    assert not set(span_hashes(packed(text), 4, "salt")) & set(first)


def test_a_span_is_whole_blocks() -> None:
    assert [span_of(size) for size in (1, 16, 48, 128, 500)] == [256, 256, 240, 256, 500]
