"""Numbers of engines on other machines, in small random fleets."""

import random

import pytest

from chairlift.live.nodes.members import KEPT_S, Numbers


def test_the_least_free_number_is_given_after_the_servers_own() -> None:
    numbers = Numbers(2)
    assert numbers.give(["a", "b"], now=0.0)
    assert not numbers.give(["a", "b"], now=1.0)
    assert numbers.by_address == {"a": 2, "b": 3}


def test_a_member_that_comes_back_soon_has_its_number_and_later_another_may() -> None:
    numbers = Numbers(0)
    numbers.give(["a", "b"], now=0.0)
    numbers.give(["b", "c"], now=1.0)
    assert numbers.by_address == {"a": 0, "b": 1, "c": 2}
    numbers.give(["b", "c", "d"], now=KEPT_S)
    assert numbers.by_address == {"b": 1, "c": 2, "d": 0}


def test_a_list_that_begins_anew_gives_the_same_numbers() -> None:
    numbers = Numbers(1)
    numbers.give(["a", "b", "c"], now=0.0)
    again = Numbers(1, numbers.by_address)
    again.give(["c", "d"], now=1000.0)
    assert again.by_address == {**numbers.by_address, "d": 4}
    again.give(["c", "d"], now=1000.0 + KEPT_S)
    assert again.by_address == {"c": 3, "d": 4}


@pytest.mark.parametrize("seed", range(30))
def test_numbers_are_single_and_no_more_than_members_and_those_just_gone(seed: int) -> None:
    draw = random.Random(seed)
    first = draw.randrange(3)
    numbers, listed = Numbers(first), dict[str, float]()
    for step in range(60):
        now = step * 7.0
        there = [f"m{i}" for i in range(8) if draw.random() < 0.4]
        listed |= dict.fromkeys(there, now)
        before = dict(numbers.by_address)
        numbers.give(there, now)
        recent = [address for address, at in listed.items() if now - at < KEPT_S]
        assert sorted(numbers.by_address) == sorted(recent)
        assert len(set(numbers.by_address.values())) == len(numbers.by_address)
        assert all(number >= first for number in numbers.by_address.values())
        assert all(numbers.by_address[each] == before[each] for each in before if each in numbers.by_address)
        assert max(numbers.by_address.values(), default=first) < first + 8
