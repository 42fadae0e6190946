"""The outcome of one request, and of a whole run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chairlift.lab.bench.record import Ending
from chairlift.lab.contest.requests import ContestRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestOutcome:
    request: ContestRequest
    ending: Ending
    reason: str = ""  # why it failed
    text: str = ""
    num_tokens: int = 0
    res_time: float = 0.0  # from sending to the end of the answer
    first_token_time: float | None = None  # None: no line arrived

    @property
    def result(self) -> dict[str, Any] | None:
        """The original's entry; None without an answer. An error sent as text counts as an answer."""
        if self.first_token_time is None:
            return None
        return {
            "input": self.request.prompt,
            "resp_text": self.text,
            "res_time": self.res_time,
            "first_token_time": self.first_token_time,
        }


@dataclass(slots=True)
class ContestRun:
    """Always: every request that was sent has exactly one outcome, in the order in which they ended."""

    num_planned: int
    outcomes: list[ContestOutcome] = field(default_factory=list)
    exec_time: float = 0.0
    stopped: str = ""  # why not all were sent and answered

    def count(self, ending: Ending) -> int:
        return sum(outcome.ending is ending for outcome in self.outcomes)

    @property
    def num_lost(self) -> int:
        """Failed or cut."""
        return self.count(Ending.FAILED) + self.count(Ending.CUT)

    def in_words(self) -> str:
        counts = f"{self.count(Ending.FULL)} answered in full, {self.count(Ending.SHORT)} short, {self.num_lost} lost"
        line = f"{len(self.outcomes)} of {self.num_planned} requests sent: {counts}"
        return f"{line}; partial: {self.stopped}" if self.stopped else line

    def reasons(self) -> Sequence[tuple[str, int]]:
        return Counter(outcome.reason for outcome in self.outcomes if outcome.reason).most_common(5)

    def to_json(self) -> dict[str, Any]:
        return {
            "planned": self.num_planned,
            "sent": len(self.outcomes),
            "full": self.count(Ending.FULL),
            "short": self.count(Ending.SHORT),
            "lost": self.num_lost,
            "output_tokens": sum(outcome.num_tokens for outcome in self.outcomes),
            "exec_time_s": self.exec_time,
            "is_partial": bool(self.stopped),
            "stopped": self.stopped or None,
            "lost_requests": [
                {
                    "index": outcome.request.index,
                    "input": outcome.request.prompt,
                    "reason": outcome.reason,
                }
                for outcome in self.outcomes
                if outcome.ending in (Ending.FAILED, Ending.CUT)
            ],
        }
