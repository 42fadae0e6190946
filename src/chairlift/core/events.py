"""What happened, as values: the only way the core speaks of requests to the outside."""

from typing import NamedTuple

from chairlift.core.ids import RequestId
from chairlift.core.request import FinishReason
from chairlift.core.score import TokenScore


class Queued(NamedTuple):
    request: RequestId
    at: float


class Admitted(NamedTuple):
    """Stepped on: the first time, or again after a preemption."""

    request: RequestId
    at: float
    num_cached: int  # prompt tokens that were found in the prefix index


class Forked(NamedTuple):
    """A further sample took over its sibling's prompt blocks."""

    request: RequestId
    at: float
    source: RequestId


class Preempted(NamedTuple):
    request: RequestId
    at: float
    num_computed: int  # tokens that will have to be computed again


class PromptScored(NamedTuple):
    request: RequestId
    at: float
    scores: tuple[TokenScore, ...]


class Token(NamedTuple):
    request: RequestId
    at: float
    token: int
    score: TokenScore | None
    finish: FinishReason | None  # set on a request's last token


class Finished(NamedTuple):
    """Gone without a last token: aborted or failed."""

    request: RequestId
    at: float
    finish: FinishReason
    message: str


Event = Queued | Admitted | Forked | Preempted | PromptScored | Token | Finished
