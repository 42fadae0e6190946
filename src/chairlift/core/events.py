"""What happened, as values: all that the core tells of requests.

To add an event: a class here, in `Event` below, and whatever uses it; traces write and read it by its name and fields.
"""

from typing import NamedTuple

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.request import FinishReason
from chairlift.core.score import ScoreList, TokenScore


class Queued(NamedTuple):
    request: RequestId
    at: float


class Admitted(NamedTuple):
    """Joined the running set: the first time, or again after a preemption."""

    request: RequestId
    at: float
    num_cached: int  # prompt tokens that were found in the prefix index
    num_missed: int = 0  # more of them: their blocks were found, and not the state or windows that the next token sees


class Forked(NamedTuple):
    """A further sample took over its sibling's prompt blocks."""

    request: RequestId
    at: float
    source: RequestId


class Preempted(NamedTuple):
    request: RequestId
    at: float
    num_computed: int
    is_swapped: bool  # its blocks were moved out and come back; else they are computed again


class Exported(NamedTuple):
    """A request that was asked to leave is in no more plans, and its keys and values lie on the host, until it is
    aborted. Without blocks nothing was moved, and it goes on."""

    request: RequestId
    at: float
    num_tokens: int  # whose keys and values these are
    blocks: tuple[BlockId, ...]  # of the host


class Computed(NamedTuple):
    """A step has computed these tokens of a prompt, or of a text computed again."""

    request: RequestId
    at: float
    start: int
    num_tokens: int


class PromptScored(NamedTuple):
    request: RequestId
    at: float
    scores: ScoreList = ScoreList()


class Embedded(NamedTuple):
    """A prompt's vector, or its scores; a token that means nothing follows and ends the request."""

    request: RequestId
    at: float
    vector: bytes  # float32 numbers


class Token(NamedTuple):
    request: RequestId
    at: float
    token: int
    score: TokenScore | None = None
    finish: FinishReason | None = None  # set on a request's last token


class Finished(NamedTuple):
    """Ended without a last token: aborted, failed or timed out."""

    request: RequestId
    at: float
    finish: FinishReason
    message: str


class RuleFailed(NamedTuple):
    """A scheduling rule raised or returned nonsense and was replaced by the plain one."""

    request: RequestId  # 0: none in particular
    at: float
    message: str


class Shrunk(NamedTuple):
    """A step did not fit the runner's memory and was rolled back; steps are smaller for a while."""

    request: RequestId  # 0: none in particular
    at: float
    max_tokens: int  # of the next step
    message: str


Event = (
    Queued
    | Admitted
    | Forked
    | Preempted
    | Exported
    | Computed
    | PromptScored
    | Embedded
    | Token
    | Finished
    | RuleFailed
    | Shrunk
)
