"""What a front end does with the members' list: links come and go."""

from typing import Any, cast

from chairlift.live.nodes.feed import GRACE_S, MembersFeed
from chairlift.live.nodes.messages import Ended, Left, MemberEngine, Members
from chairlift.live.recovery.step_note import InterruptedWork
from chairlift.live.wire.curve import Curve

A, B = MemberEngine("tcp://a:1"), MemberEngine("tcp://b:1")


class Links:
    """The part of `ReplicaLinks` that the feed uses."""

    def __init__(self) -> None:
        self.addresses: dict[int, str] = {}
        self.looks: dict[str, Any] = {}
        self.numbers: dict[str, int] = {}
        self.working: set[str] = set()

    def add(self, address: str, curve: Curve, look: Any, number: int) -> int:
        replica = len(self.looks)
        self.addresses[replica], self.looks[address] = address, look
        self.working.add(address)
        return replica

    def renumber(self, replica: int, number: int) -> None:
        self.numbers[self.addresses[replica]] = number

    def remove(self, replica: int) -> None:
        del self.addresses[replica]

    def is_linked(self, replica: int) -> bool:
        return self.addresses[replica] in self.working


class World:
    def __init__(self) -> None:
        self.links, self.now = Links(), 100.0
        self.feed = MembersFeed(cast(Any, self.links), Curve("11" * 32), now=lambda: self.now)

    def hear(self, *engines: MemberEngine, after_s: float = 0.0, starting: tuple[str, ...] = ()) -> list[str]:
        self.now += after_s
        self.feed.hear(Members(list(engines), list(starting)))
        return list(self.links.addresses.values())


def test_members_get_a_link_each() -> None:
    world = World()
    assert world.hear(A) == [A.address]
    assert world.hear(A, B) == [A.address, B.address]


def test_a_link_that_works_is_kept_whatever_the_list_says() -> None:
    world = World()
    world.hear(A, B)
    assert world.hear(after_s=10 * GRACE_S) == [A.address, B.address]


def test_a_broken_link_is_kept_while_its_member_is_listed() -> None:
    world = World()
    world.hear(A)
    world.links.working.clear()
    assert world.hear(A, after_s=10 * GRACE_S) == [A.address]


def test_a_broken_link_is_kept_while_its_engine_starts_again() -> None:
    world = World()
    assert world.hear(starting=(A.address,)) == []  # none is made before it is ready
    world.hear(A)
    world.links.working.clear()
    assert world.hear(after_s=10 * GRACE_S, starting=(A.address,)) == [A.address]
    assert world.hear(after_s=GRACE_S) == []


def test_a_broken_link_that_is_not_listed_goes_and_may_come_again() -> None:
    world = World()
    world.hear(A)
    world.links.working.clear()
    assert world.hear(after_s=GRACE_S / 2) == [A.address]
    assert world.hear(after_s=GRACE_S / 2) == []
    assert world.hear(A) == [A.address]


def test_a_member_that_has_left_goes_at_once_and_comes_again_as_another() -> None:
    world = World()
    world.hear(A, B)
    world.feed.hear_left(Left([A.address, "tcp://never-heard-of:1"]))
    assert list(world.links.addresses) == [1]
    world.hear(A, B)
    assert sorted(world.links.addresses) == [1, 2]


def test_how_an_engine_ended_is_told_once_and_not_late() -> None:
    world = World()
    world.hear(A)
    look = world.links.looks[A.address]
    assert look() is None
    world.feed.hear_end(Ended(A.address, False, {b"one": [3]}))
    assert look() == InterruptedWork({b"one": [3]}, was_killed=False)
    assert look() is None
    world.feed.hear_end(Ended(A.address, False, {b"one": [3]}))
    world.now += 60.0
    assert look() is None
