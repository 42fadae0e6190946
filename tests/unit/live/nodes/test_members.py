"""The members' list, told by hand and with a clock that stands."""

from chairlift.live.nodes.members import SILENT_S, MembersList
from chairlift.live.nodes.messages import Leave, MemberEngine, Tell
from chairlift.live.nodes.terms import EngineTerms, Terms


def new_list(has_own: bool = False) -> MembersList:
    return MembersList(Terms("tiny", "abc", is_exact=True), has_own)


def tell(node: str, fingerprint: str = "f1", address: str = "") -> Tell:
    return Tell(node, "tiny", "abc", engines=[MemberEngine(address or f"tcp://{node}:1", fingerprint, 256, 2048)])


def addresses(members: MembersList) -> list[str]:
    return [engine.address for engine in members.members().engines]


def test_nodes_are_listed_until_they_leave_or_fall_silent() -> None:
    members = new_list()
    assert members.hear(tell("a"), now=0.0) is None
    assert members.hear(tell("b"), now=1.0) is None
    assert addresses(members) == ["tcp://a:1", "tcp://b:1"]
    members.hear(tell("b"), now=SILENT_S)
    assert [gone.node for gone in members.end_silent(SILENT_S)] == ["a"]
    assert members.leave(Leave("b")) == ["tcp://b:1"]
    assert members.leave(Leave("b")) is None
    assert addresses(members) == []


def test_engines_that_start_are_told_of_as_long_as_their_node_is_there() -> None:
    members = new_list()
    members.hear(tell("a"), now=0.0)
    members.hear(Tell("b", "tiny", "abc", starting=["tcp://b:1"]), now=0.0)
    assert addresses(members) == ["tcp://a:1"]
    assert members.members().starting == ["tcp://b:1"]
    members.end_silent(SILENT_S)
    assert members.members().starting == []


def test_the_first_node_sets_the_fingerprint_where_the_server_has_no_engines() -> None:
    members = new_list()
    assert members.hear(tell("a", "f1"), now=0.0) is None
    assert members.hear(tell("b", "f2"), now=0.0) is not None
    assert addresses(members) == ["tcp://a:1"]


def test_nodes_wait_for_the_servers_own_engine() -> None:
    members = new_list(has_own=True)
    assert members.hear(tell("a", "f1"), now=0.0) is None
    assert addresses(members) == []
    members.begin(EngineTerms("f2", 256, 2048))
    assert members.hear(tell("a", "f1"), now=1.0) is not None
    assert members.hear(tell("b", "f2"), now=1.0) is None
    assert addresses(members) == ["tcp://b:1"]


def test_a_list_that_begins_anew_is_told_all_again() -> None:
    first = new_list()
    told = [tell("a"), tell("b")]
    for each in told:
        first.hear(each, now=0.0)
    second = MembersList(first.terms, has_own=False)
    assert second.hear(tell("c", "f2"), now=0.0) is not None  # though it is the first to tell
    for each in told:
        assert second.hear(each, now=0.5) is None
    assert addresses(second) == addresses(first)


def test_of_two_nodes_at_one_address_the_last_counts() -> None:
    members = new_list()
    members.hear(tell("old", address="tcp://a:1"), now=0.0)
    members.hear(tell("new", address="tcp://a:1"), now=1.0)
    assert addresses(members) == ["tcp://a:1"]
