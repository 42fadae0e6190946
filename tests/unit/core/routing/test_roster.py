"""Which replicas may take a request."""

from chairlift.core.routing.roster import Roster


def roster(*fingerprints: str) -> Roster:
    found = Roster()
    for replica, fingerprint in enumerate(fingerprints):
        found.come(replica, fingerprint)
    return found


def test_a_request_stays_with_its_fingerprint_unless_all_are_there_and_none_has_it() -> None:
    found = roster("a", "b", "a")
    assert found.takers(None, False, 3) == 0b111
    assert found.takers("a", True, 3) == 0b101
    found.go(0)
    found.go(2)
    assert found.takers("a", True, 3) == 0  # one of them may come back
    assert found.takers("a", True, 1) == 0b010


def test_drained_ones_take_none_unless_no_other_is_there() -> None:
    found = roster("a", "a")
    found.drain(0, True)
    assert found.takers("a", True, 2) == 0b10
    found.go(1)
    assert found.takers("a", True, 2) == 0b01
    found.go(0)
    found.come(0, "a")
    assert found.is_drained(0)
    found.drain(0, False)
    assert not found.is_drained(0)


def test_roles_are_kept_to_where_one_is_there() -> None:
    found = Roster(("prefill", "decode", "decode"))
    for replica in range(3):
        found.come(replica, None)
    assert (found.takers(None, False, 3), found.takers(None, True, 3)) == (0b001, 0b110)
    found.go(0)
    assert found.takers(None, False, 3) == 0b110
    assert [found.is_prefill(replica) for replica in range(3)] == [True, False, False]
