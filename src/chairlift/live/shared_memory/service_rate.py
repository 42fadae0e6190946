"""How fast requests are served: what was finished over the last while, whichever front end it was for.

Always: the marks are at least a second apart, so the ring holds half a minute of a busy server. Nothing is marked while
nobody asks for anything, and a while without requests does not count as slow.
"""

from typing import NamedTuple

from chairlift.live.shared_memory.counts import MARK_WIDTH, NUM_MARKS, Count, Counts

_EVERY_S = 1.0
_WINDOW_S = 30.0
_NS = 10**9


class ServiceRate(NamedTuple):
    """What was finished, in how many seconds; none when nothing has been marked of late."""

    num_requests: int = 0
    num_tokens: int = 0
    seconds: float = 0.0


def mark(counts: Counts, now: float) -> None:
    """Notes how much has been finished; to be called whenever a request comes or goes."""
    marks = counts.marks
    if now - _at(marks, marks[0]) < _EVERY_S:
        return
    with counts.locked():
        place = marks[0]
        if now - _at(marks, place) >= _EVERY_S:  # still
            place = (place + 1) % NUM_MARKS
            start = 1 + place * MARK_WIDTH
            marks[start + 1] = counts.total(Count.FINISHED)
            marks[start + 2] = counts.total(Count.FINISHED_TOKENS)
            marks[start] = round(now * _NS)
            marks[0] = place


def rate(counts: Counts, now: float) -> ServiceRate:
    """Since the oldest mark of the last while."""
    marks = counts.marks
    first = min(
        (p for p in range(NUM_MARKS) if now - _at(marks, p) <= _WINDOW_S), key=lambda p: _at(marks, p), default=None
    )
    if first is None:
        return ServiceRate()
    start = 1 + first * MARK_WIDTH
    return ServiceRate(
        counts.total(Count.FINISHED) - marks[start + 1],
        counts.total(Count.FINISHED_TOKENS) - marks[start + 2],
        now - _at(marks, first),
    )


def _at(marks: memoryview, place: int) -> float:
    return marks[1 + place * MARK_WIDTH] / _NS
