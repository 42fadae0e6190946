"""Requests in flight and token rates over a run, in even steps of time.

Always: a request waits from sending to its first chunk and runs from then to its end. Its tokens are spread evenly over
its chunks.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from chairlift.lab.bench.record import ClientRecord
from chairlift.lab.report.axis import round_step

MAX_STEPS = 240
MAX_RATE_STEPS = 60  # few enough that a step has many answers


@dataclass(frozen=True, slots=True)
class RunTimeline:
    step_s: float
    waiting: list[int]  # at the end of each step
    running: list[int]
    rate_step_s: float
    tokens_per_s: list[float]  # within each of these longer steps
    answers_per_s: list[float]

    @classmethod
    def of(cls, records: Sequence[ClientRecord]) -> "RunTimeline":
        end_s = max((record.last_s for record in records), default=0.0)
        step_s, rate_step_s = (round_step(max(1e-3, end_s / num)) for num in (MAX_STEPS, MAX_RATE_STEPS))
        least = min(1, len(records))
        waiting, running = _levels(records, step_s, max(least, math.ceil(end_s / step_s)))
        tokens, answers = _rates(records, rate_step_s, max(least, math.ceil(end_s / rate_step_s)))
        return cls(step_s, waiting, running, rate_step_s, tokens, answers)


def _levels(records: Sequence[ClientRecord], step_s: float, num: int) -> tuple[list[int], list[int]]:
    waiting, running = [0] * (num + 1), [0] * (num + 1)
    for record in records:
        first_s = record.chunks[0] if record.chunks else record.last_s
        _count(waiting, record.sent_s / step_s, first_s / step_s)
        _count(running, first_s / step_s, record.last_s / step_s)
    return list(accumulate(waiting[:num])), list(accumulate(running[:num]))


def _rates(records: Sequence[ClientRecord], step_s: float, num: int) -> tuple[list[float], list[float]]:
    tokens, answers = [0.0] * num, [0.0] * num
    for record in records:
        chunks = record.chunks
        for at in chunks:
            tokens[min(num - 1, int(at / step_s))] += record.output_tokens / len(chunks) / step_s
        if record.is_answered:
            answers[min(num - 1, int(record.last_s / step_s))] += 1 / step_s
    return tokens, answers


def _count(changes: list[int], start: float, end: float) -> None:
    """Counts a request at the end of every step in [start, end)."""
    changes[min(len(changes) - 1, max(0, math.ceil(start) - 1))] += 1
    changes[min(len(changes) - 1, max(0, math.ceil(end) - 1))] -= 1


def peak_tokens_per_s(records: Iterable[ClientRecord]) -> float:
    """The most tokens within a second, of seconds that begin at whole ones."""
    seconds: dict[int, float] = {}
    for record in records:
        for at in record.chunks:
            seconds[int(at)] = seconds.get(int(at), 0.0) + record.output_tokens / len(record.chunks)
    return max(seconds.values(), default=0.0)


def max_concurrency_of(records: Iterable[ClientRecord]) -> int:
    """The most requests in flight at the same time."""
    changes = sorted((moment, change) for r in records for moment, change in ((r.sent_s, 1), (r.last_s, -1)))
    level = most = 0
    for _, change in changes:  # at the same moment, ends come first
        level += change
        most = max(most, level)
    return most
