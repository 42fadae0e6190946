"""The service rate: what all front ends together finished over the last half minute.

Always: marks are at least a second apart, so the ring holds half a minute of a busy server. Without requests nothing is
marked, so an idle time does not count as slow.
"""

from typing import NamedTuple

from chairlift.live.shared_memory.counts import MARK_WIDTH, NUM_MARKS, Count, Counts

_EVERY_S = 1.0
_WINDOW_S = 30.0
_NS = 10**9


class ServiceRate(NamedTuple):
    """What was finished in how many seconds; zeros when nothing was marked lately."""

    num_requests: int = 0
    num_tokens: int = 0
    seconds: float = 0.0


def mark(counts: Counts, now: float) -> None:
    """Notes how much has been finished; called whenever a request comes or goes."""
    marks = counts.marks
    if now - _at(marks, marks[0]) < _EVERY_S:
        return
    with counts.locked():
        last = marks[0]
        if now - _at(marks, last) >= _EVERY_S:  # still
            last = (last + 1) % NUM_MARKS
            start = 1 + last * MARK_WIDTH
            marks[start + 1] = counts.total(Count.FINISHED)
            marks[start + 2] = counts.total(Count.FINISHED_TOKENS)
            marks[start] = round(now * _NS)
            marks[0] = last


def rate(counts: Counts, now: float) -> ServiceRate:
    """Since the oldest mark of the window."""
    marks = counts.marks
    recent = [mark for mark in range(NUM_MARKS) if now - _at(marks, mark) <= _WINDOW_S]
    if not recent:
        return ServiceRate()
    first = min(recent, key=lambda mark: _at(marks, mark))
    start = 1 + first * MARK_WIDTH
    return ServiceRate(
        counts.total(Count.FINISHED) - marks[start + 1],
        counts.total(Count.FINISHED_TOKENS) - marks[start + 2],
        now - _at(marks, first),
    )


def _at(marks: memoryview, mark: int) -> float:
    return marks[1 + mark * MARK_WIDTH] / _NS
