"""Requests as bars of the live page's timeline, and which of them are shown.

A bar is a row of spans without gaps, a letter for each phase; a prompt has a span for each chunk. Always: at most
`MAX_SHOWN` requests are shown, chosen by their order of arrival alone, so that slow and quick ones have the same
chance.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from chairlift.core.events import Admitted, Event, Queued
from chairlift.core.ids import RequestId
from chairlift.core.request import Progress
from chairlift.telemetry.phases import DECODE, OVER, PREEMPTED, PROMPT, QUEUED, RECOMPUTED, SWAPPED, after

MAX_SHOWN = 200
MAX_SPANS = 48
KEEP_S = 120.0  # after their end
_LETTERS = {QUEUED: "q", PROMPT: "p", DECODE: "d", PREEMPTED: "o", SWAPPED: "o", RECOMPUTED: "a", OVER: ""}


class Bar(NamedTuple):
    """What every page gets of a row; not its user."""

    id: RequestId
    prompt: int
    output: int
    cached: int
    arrival: float
    first: float | None
    end: float | None
    finish: str
    state: str  # letter of the open span; empty: none is open
    spans: list[tuple[str, float]]  # letter, until when


@dataclass(slots=True, eq=False)
class BarRow:
    progress: Progress
    siblings: tuple[RequestId, ...]  # all samples of its prompt, with this one
    num_running: int  # at its arrival
    num_ahead: int
    mark: int  # records of the log until then
    state: str = QUEUED
    spans: list[tuple[str, float]] = field(default_factory=list)
    num_cached: int = 0
    first: float | None = None
    end: float | None = None
    finish: str = ""
    is_new: bool = True  # changed since it was last shown
    number: int = 0

    @property
    def num_output(self) -> int:
        """Tokens made by this engine."""
        return self.progress.num_output - len(self.progress.request.output)

    def take(self, event: Event) -> None:
        if isinstance(event, Admitted):
            self.num_cached = self.num_cached or event.num_cached
        if not isinstance(event, Queued):
            self._cut(event.at, after(self.state, event, len(self.progress.tokens)))

    def begin(self, at: float) -> None:
        """Its first token came."""
        self.first, self.is_new = at, True
        if self.state == PROMPT:
            self._cut(at, DECODE)

    def close(self, at: float, finish: str) -> None:
        self._cut(at, OVER)
        self.end, self.finish = at, finish

    def _cut(self, at: float, then: str) -> None:
        """Ends the open span and begins another."""
        self.is_new = True
        if len(self.spans) >= MAX_SPANS:  # a very long prompt: two of its chunks become one
            del self.spans[next((i for i, (one, two) in enumerate(pairwise(self.spans)) if one[0] == two[0]), 0)]
        self.spans.append((_LETTERS[self.state], round(at, 4)))
        self.state = then

    def bar(self) -> Bar:
        request = self.progress.request
        lengths = len(request.prompt), self.num_output, self.num_cached
        times = round(self.progress.arrival, 4), self.first, self.end
        return Bar(request.id, *lengths, *times, self.finish, _LETTERS[self.state], self.spans)


class ShownRows:
    """Every k-th request, where k doubles when there are too many and halves when there are few."""

    def __init__(self) -> None:
        self.every = 1
        self.gone: list[RequestId] = []  # not shown any more, since the last news
        self._num_seen = 0
        self._rows: dict[RequestId, BarRow] = {}

    def __iter__(self) -> Iterator[BarRow]:
        return iter(self._rows.values())

    def get(self, request: RequestId) -> BarRow | None:
        return self._rows.get(request)

    def offer(self, row: BarRow) -> None:
        row.number = self._num_seen
        self._num_seen += 1
        if row.number % self.every == 0:
            self._rows[row.progress.id] = row
            if len(self._rows) > MAX_SHOWN:
                self.every *= 2
                self._drop([row for row in self if row.number % self.every])

    def forget(self, now: float) -> None:
        """Drops those that ended long ago."""
        self._drop([row for row in self if row.end is not None and row.end < now - KEEP_S])
        if self.every > 1 and len(self._rows) < MAX_SHOWN // 4:
            self.every //= 2

    def _drop(self, rows: list[BarRow]) -> None:
        for row in rows:
            del self._rows[row.progress.id]
            self.gone.append(row.progress.id)
