"""A request as it was asked for (`Request`), and how far it has come (`Progress`).

`Request` never changes and crosses every seam: front end to engine, plan to runner. `Progress` belongs to the
scheduler. One pair of numbers drives everything: tokens computed against tokens known. A prompt, a chunk of a
prompt, a prefix found in the cache, a decode step and the return after a preemption are all "compute the next
known tokens".
"""

from dataclasses import dataclass, field
from enum import Enum

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    id: RequestId
    prompt: tuple[int, ...]
    params: SamplingParams
    max_output: int  # params.max_tokens, or what the context leaves
    seed: int
    sample_index: int = 0  # which of the n samples of one prompt
    stop_ids: frozenset[int] = frozenset()  # end-of-sequence ids (unless ignored) and stop_token_ids
    adapter: int = 0  # 0: the bare model
    cache_salt: str = ""  # requests share cached prefixes only under the same salt
    priority: int = 0
    user: str = ""


class State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    UNBORN = "unborn"  # a further sample whose prompt its leading sibling is still computing


class FinishReason(Enum):
    STOP = "stop"  # an end-of-sequence or stop token
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(slots=True, eq=False)
class Progress:
    """Where a request stands. Always: num_computed <= len(tokens) + num_pending."""

    request: Request
    arrival: float
    tokens: list[int]  # prompt, then output; append-only, so plans may hold a view of it
    state: State = State.WAITING
    num_computed: int = 0  # tokens whose keys and values every issued plan has written
    num_pending: int = 0  # tokens that issued plans will sample but no commit has brought yet
    num_cached: int = 0  # prompt tokens found in the prefix index at the first admission
    num_preempted: int = 0
    # The block table. Replaced, never emptied, on release: plans in flight keep their view of the old list.
    blocks: list[BlockId] = field(default_factory=list)
    num_published: int = 0  # leading blocks that the prefix index knows
    content: int = 0  # the index's name for the content of those blocks
    siblings: list["Progress"] = field(default_factory=list)

    @property
    def id(self) -> RequestId:
        return self.request.id

    @property
    def num_known(self) -> int:
        """Tokens that will be known once every issued plan has been committed."""
        return len(self.tokens) + self.num_pending

    @property
    def num_output(self) -> int:
        return len(self.tokens) - len(self.request.prompt)
