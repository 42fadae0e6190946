"""The grammar of --events and --autoscale: mistakes are refused in one line."""

import re

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.sim.fleet.changes import Change, Changes, FleetEvent, check, parse_autoscale, parse_events


def test_events_are_sorted_by_time() -> None:
    assert parse_events("90s add 3, 60.5 lose 3") == (FleetEvent(60.5, Change.LOSE, 3), FleetEvent(90.0, Change.ADD, 3))


@pytest.mark.parametrize("text", ["", "60s", "60s kill 3", "lose 3", "60s lose", "-1s lose 3", "60s lose 3,"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--events"):
        parse_events(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1s lose 0, 2ms lose 3", "entry 2 ('2ms lose 3'): the time '2ms' must be in seconds, as in 60s or 0.002s"),
        ("60s kill 3", "entry 1 ('60s kill 3'): 'kill' must be lose, drain or add"),
        ("60s lose x", "the replica 'x' must be its number, from 0"),
        ("60s lose 3,", "entry 2 (''): give a time"),
    ],
)
def test_the_entry_and_the_field_are_named_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        parse_events(text)


def test_a_space_before_the_unit_is_fine() -> None:
    assert parse_events("60 s lose 3") == parse_events("60s lose 3") == parse_events("60 lose 3")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1s lose 4", "numbered from 0 to 3"),
        ("1s lose 3, 2s lose 3", "it is not there"),
        ("1s add 3", "it is there"),
        ("1s drain 3, 2s drain 3", "takes no requests"),
    ],
)
def test_what_cannot_happen_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        check(Changes(parse_events(text)), 4)


def test_a_drained_replica_may_be_lost_or_added() -> None:
    check(Changes(parse_events("1s drain 0, 2s add 0, 3s drain 0, 4s lose 0, 5s add 0")), 1)


def test_autoscaling_is_read_with_its_parameters() -> None:
    found = parse_autoscale("2-16:target=100,start=5")
    assert (found.scaling.least, found.scaling.most, found.start_s) == (2, 16, 5.0)


@pytest.mark.parametrize(
    "text",
    ["", "3", "3-2", "0-4", "2-4:goal=3", "2-4:target=x", "2-4:target=1,target=2", "2-4:target=0", "2-9999", "2-1025"],
)
def test_other_specs_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--autoscale"):
        parse_autoscale(text)


def test_a_run_begins_within_the_bounds_and_replicas_can_only_be_lost_then() -> None:
    changes = Changes((), parse_autoscale("2-4"))
    check(changes, 2)
    with pytest.raises(InvalidConfig, match="allows 2 to 4"):
        check(changes, 5)
    with pytest.raises(InvalidConfig, match="leave --autoscale or --roles out"):
        check(changes, 2, "prefill:1,decode:1")
    with pytest.raises(InvalidConfig, match="only be lost"):
        check(changes._replace(events=parse_events("1s drain 0")), 2)
