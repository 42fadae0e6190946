"""A request's phases, and which event begins which.

    queued --admitted--> prompt --computed--> decoding --last token--> over
                            |                    |
                            +----- preempted ----+     or swapped, when its blocks were moved out
                                       |
                                   admitted: computed again; from swapped: decoding

Always: a phase follows from the one before and an event. The live page draws phases as bars, a breakdown cuts running
ones at the steps of a trace, a Chrome trace gives them tracks, and spans name those that wait.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from chairlift.core.events import Admitted, Computed, Finished, Forked, Preempted, Queued, Token
from chairlift.telemetry.lines import AbortLine, AnyLine

QUEUED, PROMPT, DECODE, OVER = "queued", "prompt", "decoding", "over"
PREEMPTED, SWAPPED, RECOMPUTED = "preempted", "swapped", "computed again"
SKIPPED = "passed by"  # running, while steps compute nothing of it; only plans tell

WAITS = {QUEUED: QUEUED, PREEMPTED: PREEMPTED, SWAPPED: PREEMPTED}  # and their names to a reader
_SPANS = {QUEUED: "queue", PREEMPTED: "preemption"}
_RETURNS = {PREEMPTED: RECOMPUTED, SWAPPED: DECODE}
Mark = tuple[str, float]  # a phase of a request in the engine, and when it began


class Phase(NamedTuple):
    """As a span."""

    name: str
    start: float
    end: float


def after(phase: str, line: AnyLine, num_known: int | None = None) -> str:
    """The phase in which an event of a request leaves it. `num_known`: its tokens, where its chunks matter."""
    match line:
        case Queued():
            return phase or QUEUED  # it may be told after the plan that admits
        case Admitted():
            return _RETURNS.get(phase, PROMPT)
        case Forked():
            return DECODE
        case Preempted():
            return SWAPPED if line.is_swapped else PREEMPTED
        case Computed() if num_known is not None:
            # Done when all tokens known then are computed: one has come since, or is the next step's.
            return DECODE if line.start + line.num_tokens >= num_known - 1 else phase
        case Finished() | AbortLine():
            return OVER
        case Token() if line.finish is not None:
            return OVER
    return phase


def phases(marks: list[Mark], first: float | None, ended: float) -> list[Phase]:
    """The spans. `first`: when the first token came. An open phase lasts until `ended`."""
    return sorted(_spans(marks, first, ended), key=lambda phase: phase.start)


def _spans(marks: list[Mark], first: float | None, ended: float) -> Iterator[Phase]:
    for (name, start), (_, end) in pairwise([*marks, (OVER, ended)]):
        if name in WAITS:
            yield Phase(_SPANS[WAITS[name]], start, end)
    admitted = next((start for name, start in marks if name not in WAITS), None)
    if admitted is not None:
        # The engine's last mark may be later than the first token.
        yield Phase("prefill", admitted, max(admitted, ended if first is None else first))
    if first is not None:
        yield Phase("decode", first, ended)
