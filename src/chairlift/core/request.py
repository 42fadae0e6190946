"""A request as it was sent (`Request`), and its state in the scheduler (`Progress`).

`Request` never changes and crosses every seam: front end to engine, plan to runner. `Progress` belongs to the
scheduler. One pair of numbers drives everything: tokens computed and tokens known. A prompt, a chunk of it, a cached
prefix, a decode and the return after a preemption are all "compute the next known tokens".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.ids import BlockId, Content, RequestId
from chairlift.core.packed import PackedPrompt, packed
from chairlift.core.params import SamplingParams
from chairlift.core.score import ScoreList

if TYPE_CHECKING:
    from chairlift.core.scheduling.beams import Beams


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    id: RequestId
    prompt: tuple[int, ...]
    params: SamplingParams
    max_output: int  # params.max_tokens, or what the context leaves
    seed: int
    sample_index: int = 0  # which of the n samples of one prompt
    output: tuple[int, ...] = ()  # tokens that another engine made; it goes on after them
    num_moved: int = 0  # leading tokens whose keys and values another engine sends after it
    stop_ids: frozenset[int] = frozenset()  # end-of-sequence ids (unless ignored) and stop_token_ids
    attributes: Attributes = NO_ATTRIBUTES
    timeout_s: float | None = None  # from its arrival until it is ended
    _packed: list[PackedPrompt] = field(default_factory=list, init=False, repr=False)  # once it was asked for

    @property
    def packed(self) -> PackedPrompt:
        """The prompt, packed once: the prefix index and routers cut, compare and hash it."""
        if not self._packed:
            self._packed.append(PackedPrompt(packed(self.prompt)))
        return self._packed[0]


class State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    PENDING_FORK = "pending fork"  # a further sample whose prompt its leading sibling is still computing
    ARRIVING = "arriving"  # its keys and values are on their way from another engine
    LEAVING = "leaving"  # it is in no more plans: its keys and values go to another engine


class FinishReason(Enum):
    STOP = "stop"  # an end-of-sequence or stop token
    LENGTH = "length"
    ABORT = "abort"
    MOVED = "moved"  # it goes on in another engine
    ERROR = "error"
    TIMEOUT = "timeout"


@dataclass(slots=True, eq=False)
class Progress:
    """Always: num_computed <= num_known <= limit."""

    request: Request
    arrival: float
    # Prompt, then output; append-only, so plans may hold a view of it. A pending fork has its lead's.
    tokens: list[int]
    limit: int  # tokens, prompt included, at which it is complete
    alone: tuple[Request]  # the request by itself, as the samples of a chunk
    state: State = State.WAITING
    num_computed: int = 0  # tokens whose keys and values the issued plans write, drafts not counted
    # Tokens that issued plans sample and no commit has brought yet, those of right drafts not counted.
    num_pending: int = 0
    is_stepwise: bool = False  # its next chunk depends on its last result: in a search, or with drafts
    num_preempted: int = 0
    expected_output: int = 0
    # The block table. Only appended to, or replaced: plans in flight keep their view of it.
    blocks: list[BlockId] = field(default_factory=list)
    held: Sequence[Any] = ()  # of each kind of layers that does not keep all tokens: its pages
    tables: tuple[Sequence[BlockId], ...] = ((),)  # `blocks`, and the pages of each `held`: what chunks show
    table_step: int = 0  # the first plan that may show this table; chunks of earlier plans show another
    has_shared_tail: bool = False  # a fork left the block of the next token in several tables
    num_published: int = 0  # leading blocks that the prefix index knows
    content: Content = 0  # the index's name for what those blocks hold
    host_blocks: list[BlockId] = field(
        default_factory=list
    )  # where the content of a preempted, moved or leaving one lies
    num_saved: int = 0  # tokens whose keys and values lie there
    beams: "Beams | None" = None
    siblings: list["Progress"] = field(default_factory=list)  # pending forks that wait for this one's prompt
    lead: "Progress | None" = None  # of a pending fork: the sample it waits for
    prompt_scores: ScoreList = field(default_factory=ScoreList)

    @classmethod
    def of(cls, request: Request, arrival: float, tokens: list[int] | None = None) -> "Progress":
        """`tokens`: its lead's."""
        limit = len(request.prompt) + request.max_output
        return cls(request, arrival, tokens or [*request.prompt, *request.output], limit, (request,))

    @property
    def id(self) -> RequestId:
        return self.request.id

    @property
    def num_known(self) -> int:
        """Tokens that will be known once every issued plan has been committed."""
        return len(self.tokens) + self.num_pending

    @property
    def awaits_result(self) -> bool:
        """Whether it can be in no plan before its pending tokens are committed. Other running requests go on: pending
        tokens count as known. Admission needs the tokens themselves."""
        return self.num_pending > 0 and (self.is_stepwise or self.state is not State.RUNNING)

    @property
    def is_scored(self) -> bool:
        """Whether no score of its prompt is still to come."""
        request = self.request
        return request.params.prompt_logprobs is None or len(self.prompt_scores) == len(request.prompt) - 1

    @property
    def expires(self) -> float | None:
        timeout = self.request.timeout_s
        return None if timeout is None else self.arrival + timeout

    @property
    def num_pending_forks(self) -> int:
        return len(self.siblings)

    @property
    def num_output(self) -> int:
        return len(self.tokens) - len(self.request.prompt)


def resume(samples: Sequence[Request], outputs: Mapping[int, Sequence[int]]) -> list[tuple[Request, ...]]:
    """Groups of the samples named in `outputs`, after the tokens given there; the others have ended.

    Samples without a token start together, as new ones do. Any other starts by itself and finds shared blocks in the
    prefix index.
    """
    left = [
        replace(request, output=tuple(outputs[request.sample_index]))
        for request in samples
        if request.sample_index in outputs
    ]
    fresh = tuple(request for request in left if not request.output)
    return [(request,) for request in left if request.output] + ([fresh] if fresh else [])
