from chairlift.core.routing.roster import Roles


def test_a_request_needs_prefill_until_it_has_made_a_token() -> None:
    roles = Roles(("prefill", "decode", "decode"))
    assert (roles.takers(0b111, has_made=False), roles.takers(0b111, has_made=True)) == (0b001, 0b110)
    assert roles.takers(0b100, has_made=False) == 0b100
    assert [roles.is_prefill(replica) for replica in range(3)] == [True, False, False]


def test_without_roles_any_replica_takes_any_request() -> None:
    assert Roles().takers(0b101, has_made=True) == 0b101
    assert not Roles().is_prefill(0)
