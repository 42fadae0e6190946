"""The phases of a request for its spans: queue, prefill, decode, preemption."""

from typing import Literal, NamedTuple

Change = Literal["queued", "admitted", "preempted"]
Mark = tuple[Change, float]  # a change of a request in the engine, and when


class Phase(NamedTuple):
    name: str
    start: float
    end: float


def phases(marks: list[Mark], first: float | None, ended: float) -> list[Phase]:
    """`first`: when the first token came. An open phase lasts until `ended`."""
    found: list[Phase] = []
    waits: dict[Change, str] = {"queued": "queue", "preempted": "preemption"}
    since: Mark | None = None  # since when it waits, and why
    admitted: float | None = None
    for change, at in marks:
        if change == "admitted":
            admitted = at if admitted is None else admitted
            found += [] if since is None else [Phase(waits[since[0]], since[1], at)]
        since = None if change == "admitted" else (change, at)
    if since is not None:
        found.append(Phase(waits[since[0]], since[1], ended))
    if admitted is not None:
        # The engine's last mark may be later than the first token.
        found.append(Phase("prefill", admitted, max(admitted, ended if first is None else first)))
    if first is not None:
        found.append(Phase("decode", first, ended))
    return sorted(found, key=lambda phase: phase.start)
