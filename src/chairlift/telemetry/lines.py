"""The lines of a trace file, field by field; docs/formats.md describes them in words.

A file is one `Header`, then inputs (what a scheduler was told: `Add`, `Abort`, `Plan`, `Commit`, `Fail`, `PutBack`)
and events (what it said), in the order in which they came. Times are the clock's own, unrounded, so that a replay sees
the same.
"""

from typing import Any, ClassVar

import msgspec

from chairlift.core import events
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.preemption import Preemption
from chairlift.core.request import FinishReason

VERSION = 2


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """As the command line names them."""

    policy: str = "fcfs"
    prefill: str = "mixed"
    admission: str = "prompt"
    preemption: Preemption = Preemption()
    prefix_cache: bool = True


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="trace"):
    version: int = VERSION
    chairlift: str  # which release wrote it
    model: str
    clock: str  # "wall" or "virtual"
    depth: int  # plans that the runner took before the first was collected
    limits: Limits
    rules: Rules


class Line(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    at: float


class Add(Line, frozen=True, omit_defaults=True, kw_only=True, tag="add"):
    """A prompt was queued. Its token ids are here in full: what is cached depends on them."""

    requests: list[RequestId]  # one per sample, or per member of a beam search
    prompt: list[int]
    output: list[int] = []  # of a request that goes on: what another engine made of it
    max_output: int
    max_tokens: int | None = None
    min_tokens: int = 0
    n: int = 1
    beam_width: int = 0
    length_penalty: float = 1.0
    prompt_logprobs: int | None = None
    stop_ids: list[int] = []
    attributes: dict[str, Any] = {}  # those of `Attributes` that were given; of the salt a digest
    timeout_s: float | None = None


class Abort(Line, frozen=True, tag="abort"):
    request: RequestId


class Plan(Line, frozen=True, omit_defaults=True, kw_only=True, tag="plan"):
    """A step was asked for; without `step`, there was nothing to compute. The counts are those just afterwards."""

    step: int | None = None
    digest: str = ""
    num_decodes: int = 0  # leading chunks that compute one sampled token each
    chunks: list[tuple[RequestId, int, int]] = []  # request, start, count
    num_copies: int = 0
    num_swap_outs: int = 0
    num_swap_ins: int = 0
    running: int
    waiting: int
    preempted: int
    blocks: int  # in use
    blocks_saved: int = 0  # by sharing: what the tables of all requests list, less the blocks in use


class Commit(Line, frozen=True, omit_defaults=True, kw_only=True, tag="commit"):
    step: int
    tokens: list[int]
    beams: dict[RequestId, list[tuple[int, float]]] = {}  # what the members of searches offered
    failed: dict[RequestId, str] = {}


class Fail(Line, frozen=True, tag="fail"):
    """The step could not be carried out."""

    step: int
    message: str


class PutBack(Line, frozen=True, tag="put_back"):
    """The step did not fit the runner's memory."""

    step: int
    message: str


class EventLine(Line, frozen=True):
    """Has the fields of its event, but for scores."""

    event: ClassVar[type[events.Event]]

    request: RequestId


class Queued(EventLine, frozen=True, tag="queued"):
    event = events.Queued


class Admitted(EventLine, frozen=True, tag="admitted"):
    event = events.Admitted
    num_cached: int


class Forked(EventLine, frozen=True, tag="forked"):
    event = events.Forked
    source: RequestId


class Preempted(EventLine, frozen=True, tag="preempted"):
    event = events.Preempted
    num_computed: int
    is_swapped: bool


class Computed(EventLine, frozen=True, tag="computed"):
    event = events.Computed
    start: int
    num_tokens: int


class PromptScored(EventLine, frozen=True, tag="prompt_scored"):
    event = events.PromptScored


class Token(EventLine, frozen=True, omit_defaults=True, tag="token"):
    event = events.Token
    token: int
    finish: FinishReason | None = None


class Finished(EventLine, frozen=True, tag="finished"):
    event = events.Finished
    finish: FinishReason
    message: str


class RuleFailed(EventLine, frozen=True, tag="rule_failed"):
    event = events.RuleFailed
    message: str


class Shrunk(EventLine, frozen=True, tag="shrunk"):
    event = events.Shrunk
    max_tokens: int
    message: str


EVENT_LINES: tuple[type[EventLine], ...] = (
    Queued, Admitted, Forked, Preempted, Computed, PromptScored, Token, Finished, RuleFailed, Shrunk,
)  # fmt: skip
_BY_EVENT = {line.event: line for line in EVENT_LINES}
_SCORES: dict[type[events.Event], dict[str, Any]] = {events.Token: {"score": None}, events.PromptScored: {"scores": ()}}

AnyLine = (
    Add | Abort | Plan | Commit | Fail | PutBack
    | Queued | Admitted | Forked | Preempted | Computed | PromptScored | Token | Finished | RuleFailed | Shrunk
)  # fmt: skip


def line_of(event: events.Event) -> EventLine:
    if isinstance(event, events.Token):  # by far the most frequent
        return Token(event.at, event.request, event.token, event.finish)
    kind = _BY_EVENT[type(event)]
    return kind(**{name: getattr(event, name) for name in kind.__struct_fields__})


def event_of(line: EventLine) -> events.Event:
    values = {name: getattr(line, name) for name in line.__struct_fields__}
    return line.event(**_SCORES.get(line.event, {}), **values)
