"""The record of one request, sent from a client process to the parent.

Always: times are seconds after the start of the run, on one clock for all processes of the machine.
"""

import enum
from dataclasses import dataclass

from chairlift.core.errors import ChairliftError


class Ending(enum.StrEnum):
    FULL = "full"  # as many tokens as were asked for
    SHORT = "short"  # it ended properly, with fewer
    FAILED = "failed"
    CUT = "cut"  # the run was stopped while it was in flight


class Unreachable(ChairliftError):
    """The server did not accept the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord:
    index: int  # in the workload
    due_s: float  # when it was to be sent
    sent_s: float  # before connecting, if that was needed
    times: bytes  # doubles: arrival of each chunk with tokens
    last_s: float  # arrival of the last part of the answer; sent_s if there was none
    asked_tokens: int
    prompt_tokens: int
    cached_tokens: int | None  # of the prompt, by the server's count
    output_tokens: int
    is_told: bool  # the server reported token counts; else chunks count as tokens
    ending: Ending
    reason: str = ""
    is_unreachable: bool = False

    @property
    def chunks(self) -> "memoryview[float]":
        return memoryview(self.times).cast("d")

    @property
    def is_answered(self) -> bool:
        return self.ending in (Ending.FULL, Ending.SHORT)

    @property
    def ttft_s(self) -> float:
        """Needs a chunk, as tpot_s does."""
        return self.chunks[0] - self.sent_s

    @property
    def e2e_s(self) -> float:
        return self.last_s - self.sent_s

    @property
    def tpot_s(self) -> float:
        """NaN for a single token."""
        if self.output_tokens < 2:
            return float("nan")
        return (self.last_s - self.chunks[0]) / (self.output_tokens - 1)
