"""What one step does (`StepPlan`) and what came of it (`StepResult`).

A plan is complete and immutable: a runner needs nothing else, and a stored plan can be printed and replayed. Token
lists and tables are views (list, length) of append-only lists; `snapshot` copies them for storing.

    tokens of a chunk = tokens[start : start + count]
    A token at an index >= num_tokens is not known yet: it is the one the runner itself sampled last for this request.
    That is how step n+1 is planned before step n's tokens are known; with two plans in flight it is step n's.

A chunk with drafts computes its last known token and guesses of those that follow. At each of its positions the runner
chooses the token that it would choose there anyway, and goes on as long as that is the one drafted:

    known  drafts               chosen           tokens of the result
    ... c  d e f      after c d e f:  d e x .    d e x: two drafts were right, and the third told its right token
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.request import Request
from chairlift.core.score import TokenScore


class Chunk(NamedTuple):
    """Consecutive tokens of one request to compute in this step."""

    request: Request
    start: int  # tokens of this request already in the cache
    count: int  # type: ignore[assignment]  # hides tuple.count
    tokens: Sequence[int]
    num_tokens: int  # how many of `tokens` were known when the plan was made
    # Its block table, and for each kind of layers that does not keep all tokens the table of its pages; those that the
    # chunk's tokens do not see may be others' by now, and are not to be read.
    tables: tuple[Sequence[BlockId], ...]
    num_blocks: int  # how many of the first belong to this plan
    # Requests that sample from the last position: none before the end of the known tokens, then the request itself,
    # and with it its siblings when they fork.
    samples: tuple[Request, ...]
    drafts: tuple[int, ...] = ()  # guesses of the tokens after tokens[:num_tokens], the last of the `count`

    @property
    def blocks(self) -> Sequence[BlockId]:
        return self.tables[0]

    def snapshot(self) -> "Chunk":
        tables = (tuple(self.blocks[: self.num_blocks]), *map(tuple, self.tables[1:]))
        return self._replace(tokens=tuple(self.tokens[: self.num_tokens]), tables=tables)


class BlockCopy(NamedTuple):
    """Copy the content of a whole block."""

    source: BlockId
    target: BlockId


class Checkpoint(NamedTuple):
    """A state of layers whose memory does not grow, to be written to further pages."""

    request: RequestId
    place: int  # of the kind of layers among all
    position: int  # tokens that it follows, all of them computed then
    pages: tuple[BlockId, ...]


class AdapterSlot(NamedTuple):
    """An adapter, and the place on the device where its matrices are."""

    adapter: int
    slot: int


class StepPlan(NamedTuple):
    step: int
    chunks: tuple[Chunk, ...]  # decodes first, then those with drafts, then prompt chunks; none: only swap_outs
    copies: tuple[BlockCopy, ...]  # inside the cache, before anything is computed
    num_tokens: int
    num_decodes: int  # leading chunks that compute one token each
    # Before the copies, in this order:
    swap_outs: tuple[BlockCopy, ...] = ()  # from the cache to the host
    swap_ins: tuple[BlockCopy, ...] = ()  # from the host to the cache
    num_drafting: int = 0  # chunks after the leading ones that decode with drafts
    # Requests that have another block table than in the plans before, in this one or later; any other table has at most
    # been appended to.
    new_tables: tuple[RequestId, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()  # that its chunks reach
    adapters: tuple[AdapterSlot, ...] = ()  # of its chunks' requests, each once
    loads: tuple[AdapterSlot, ...] = ()  # to be copied to their slots, which no chunk but their own requests' uses

    @property
    def num_decoding(self) -> int:
        """Leading chunks that decode, with drafts or without."""
        return self.num_decodes + self.num_drafting

    def snapshot(self) -> "StepPlan":
        return self._replace(chunks=tuple(chunk.snapshot() for chunk in self.chunks))


class Sampled(NamedTuple):
    token: int
    score: TokenScore | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """Sampled tokens: each sample's first, in the order of the plan's chunks and, within a chunk, of its samples; and
    those that follow it where drafts were right."""

    step: int
    tokens: Sequence[int]
    scores: dict[RequestId, TokenScore] = field(default_factory=dict)  # of these tokens, where params.logprobs asks
    # Where params.prompt_logprobs asks: the scores of tokens[start + 1 : start + count + 1] that lie in the prompt.
    prompt_scores: dict[RequestId, tuple[TokenScore, ...]] = field(default_factory=dict)
    # A request that failed alone (its logits were not numbers): its message. Its token above means nothing.
    failed: dict[RequestId, str] = field(default_factory=dict)
    more: Mapping[RequestId, Sequence[Sampled]] = field(default_factory=dict)  # tokens after the first
    # Of a model that makes vectors or scores instead of text: float32 numbers. The token above means nothing.
    vectors: Mapping[RequestId, bytes] = field(default_factory=dict)
    # Of a runner that computes inside `submit`: how long it took to turn the plan into tensors.
    prepare_s: float | None = field(default=None, compare=False)
    # Of a runner that computes after `submit`: whether the step had ended when `collect` was called.
    was_ready: bool = field(default=False, compare=False)
