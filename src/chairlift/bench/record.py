"""What was seen of one request, as it crosses from a client process to the one that counts.

Always: times are seconds after the start of the run, on one clock for all processes of a machine.
"""

import enum
from dataclasses import dataclass

from chairlift.core.errors import ChairliftError


class Ending(enum.StrEnum):
    FULL = "full"  # as many tokens as were asked for
    SHORT = "short"  # it ended properly, with fewer
    FAILED = "failed"
    CUT = "cut"  # the run was stopped while it was under way


class Unreachable(ChairliftError):
    """Nobody took the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord:
    index: int  # its place in the workload
    due_s: float  # when it was to be sent
    sent_s: float  # when it was: connecting, if that was needed, came after this
    times: bytes  # doubles: when chunks with tokens came
    last_s: float  # when the last part of the answer came; sent_s where there was none
    asked_tokens: int
    prompt_tokens: int
    output_tokens: int
    is_told: bool  # the server told its token counts; else chunks are taken for tokens
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
        """Only of one that has a chunk, and so are the next two."""
        return self.chunks[0] - self.sent_s

    @property
    def e2e_s(self) -> float:
        return self.last_s - self.sent_s

    @property
    def tpot_s(self) -> float:
        """Not a number where there is one token."""
        if self.output_tokens < 2:
            return float("nan")
        return (self.last_s - self.chunks[0]) / (self.output_tokens - 1)
