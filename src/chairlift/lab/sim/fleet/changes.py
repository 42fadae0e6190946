"""What happens to the replicas of a simulated run, besides requests: events at given times, and autoscaling.

    --events "60s lose 3, 90s add 3, 120s drain 1"
    --autoscale 2-16:target=2048,start=60,up=10,down=120

Always: events are in order of time, and each is possible when it comes: none loses a replica that is not there.
"""

import re
from enum import Enum
from typing import NamedTuple

from chairlift.config.options.scaling import make_scaling
from chairlift.core.errors import InvalidConfig
from chairlift.core.routing.scaling import Scaling

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)s?")
_START_S = 60.0


class Change(Enum):
    LOSE = "lose"  # it is gone, with its cache; its requests go on in others
    DRAIN = "drain"  # it takes no new requests; its own move
    ADD = "add"  # it takes requests: a new one, or one that was drained


class FleetEvent(NamedTuple):
    at: float  # seconds
    change: Change
    replica: int


class Autoscale(NamedTuple):
    scaling: Scaling
    start_s: float  # until a replica takes requests


class Changes(NamedTuple):
    events: tuple[FleetEvent, ...] = ()
    autoscale: Autoscale | None = None

    def num_slots(self, num_replicas: int) -> int:
        """The most replicas there can be."""
        return num_replicas if self.autoscale is None else self.autoscale.scaling.most


NO_CHANGES = Changes()


def parse_events(text: str) -> tuple[FleetEvent, ...]:
    found = [_parse_event(part, number) for number, part in enumerate(text.split(","), 1)]
    return tuple(sorted(found, key=lambda event: event.at))


def _parse_event(part: str, number: int) -> FleetEvent:
    where = f"--events, entry {number} ({part.strip()!r})"
    words = re.sub(r"(?<=\d)\s+s\b", "s", part).split()
    if len(words) != 3:
        raise InvalidConfig(f"{where}: give a time, then lose, drain or add, then a replica, as in 60s lose 3")
    time, change, replica = words
    match = _TIME.fullmatch(time)
    if match is None:
        raise InvalidConfig(f"{where}: the time {time!r} must be in seconds, as in 60s or 0.002s")
    if change not in {each.value for each in Change}:
        raise InvalidConfig(f"{where}: {change!r} must be lose, drain or add")
    if not re.fullmatch(r"\d{1,4}", replica):
        raise InvalidConfig(f"{where}: the replica {replica!r} must be its number, from 0")
    return FleetEvent(float(match[1]), Change(change), int(replica))


def parse_autoscale(text: str) -> Autoscale:
    scaling, more = make_scaling(text, "start")
    return Autoscale(scaling, more.get("start", _START_S))


def check(changes: Changes, num_replicas: int, roles: str | None = None) -> None:
    """Refuses what cannot happen to so many replicas, of these roles."""
    if changes.autoscale is not None:
        if roles is not None:
            raise InvalidConfig(f"--roles {roles} name every replica there is: leave --autoscale or --roles out")
        scaling = changes.autoscale.scaling
        if not scaling.least <= num_replicas <= scaling.most:
            raise InvalidConfig(
                f"--replicas {num_replicas}: a run begins with so many, and --autoscale allows {scaling.least} to "
                f"{scaling.most}"
            )
    there = dict.fromkeys(range(num_replicas), True)  # whether it takes requests; False: drained
    for event in changes.events:
        where = f"--events {event.at:g}s {event.change.value} {event.replica}"
        if event.replica >= changes.num_slots(num_replicas):
            raise InvalidConfig(f"{where}: replicas are numbered from 0 to {changes.num_slots(num_replicas) - 1}")
        if changes.autoscale is not None:
            if event.change is not Change.LOSE:
                raise InvalidConfig(f"{where}: with --autoscale replicas can only be lost")
            continue
        is_there = there.get(event.replica)
        if event.change is Change.ADD:
            if is_there:
                raise InvalidConfig(f"{where}: it is there at that time")
            there[event.replica] = True
        elif event.change is Change.DRAIN:
            if not is_there:
                raise InvalidConfig(f"{where}: it takes no requests at that time")
            there[event.replica] = False
        elif is_there is None:
            raise InvalidConfig(f"{where}: it is not there at that time")
        else:
            del there[event.replica]
