"""The lines of a trace file, field by field; docs/formats.md describes them in words.

A file is one `Header`, then inputs (what a scheduler was told: `Add`, `AbortLine`, `Leave`, `Arrive`, `Elsewhere`,
`Plan`, `Commit`, `Fail`, `RollBack`) and events (what it said), in order. Times are the clock's own, unrounded, so that
a replay sees the same.
Always: the line of an event has the event's name and fields, scores left out; `core/events.py` declares them.
"""

import re
from operator import itemgetter
from typing import Any, Union, get_args, get_type_hints

import msgspec

from chairlift.config.scheduler import Rules
from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.policy import Service
from chairlift.core.score import ScoreList, TokenScore

VERSION = 2


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="trace"):
    version: int = VERSION
    chairlift: str  # the release that wrote it
    model: str
    clock: str  # "wall" or "virtual"
    depth: int  # plans that the runner took before the first was collected
    limits: Limits
    rules: Rules


class TraceLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    at: float


class Add(TraceLine, frozen=True, omit_defaults=True, kw_only=True, tag="add"):
    """A prompt was queued. Its token ids are here in full: what is cached depends on them."""

    delay_s: float | None = None  # since a client sent it, in a simulation
    requests: list[RequestId]  # one per sample, or per member of a beam search
    prompt: list[int]
    output: list[int] = []  # of a resumed request: its tokens from another engine
    num_moved: int = 0  # leading tokens whose keys and values come from there too
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


class AbortLine(TraceLine, frozen=True, tag="abort"):
    request: RequestId
    has_moved: bool = False  # it goes on in another engine


class Leave(TraceLine, frozen=True, tag="leave"):
    """A request was asked to leave with its keys and values."""

    request: RequestId


class Arrive(TraceLine, frozen=True, tag="arrive"):
    """The keys and values of a request came from another engine, or did not."""

    request: RequestId
    is_whole: bool


class Elsewhere(TraceLine, frozen=True, tag="elsewhere"):
    """Users were served in other replicas."""

    services: list[Service]  # user, share, prompt tokens, output tokens


class Plan(TraceLine, frozen=True, omit_defaults=True, kw_only=True, tag="plan"):
    """A step was planned; without `step`, there was nothing to compute. The counts are those just afterwards."""

    step: int | None = None
    digest: str = ""
    num_decodes: int = 0  # leading chunks that compute one token each
    chunks: list[tuple[RequestId, int, int]] = []  # request, start, count
    drafts: dict[RequestId, list[int]] = {}  # of the chunks after these
    num_copies: int = 0
    num_swap_outs: int = 0
    num_swap_ins: int = 0
    running: int
    waiting: int
    preempted: int
    blocks: int  # in use
    blocks_saved: int = 0  # by sharing: what the tables of all requests list, less the blocks in use

    @property
    def num_decoding(self) -> int:
        """Leading chunks that decode, with drafts or without."""
        return self.num_decodes + len(self.drafts)


class Commit(TraceLine, frozen=True, omit_defaults=True, kw_only=True, tag="commit"):
    step: int
    tokens: list[int]
    more: dict[RequestId, list[int]] = {}  # tokens after a sample's first
    beams: dict[RequestId, list[tuple[int, float]]] = {}  # what the members of searches offered
    failed: dict[RequestId, str] = {}


class Fail(TraceLine, frozen=True, tag="fail"):
    """The step failed."""

    step: int
    message: str


class RollBack(TraceLine, frozen=True, tag="put_back"):
    """The step did not fit the runner's memory."""

    step: int
    message: str


Input = Add | AbortLine | Leave | Arrive | Elsewhere | Plan | Commit | Fail | RollBack
AnyLine = Input | Event


def _line_type(event: type[Event]) -> type[msgspec.Struct]:
    types = {name: kind for name, kind in get_type_hints(event).items() if not _has_scores(kind)}
    defaults = {name: (value,) for name, value in event._field_defaults.items()}
    # Times first, as in every line.
    fields = [(name, types[name], *defaults.get(name, ())) for name in sorted(types, key=lambda name: name != "at")]
    tag = re.sub("(?<!^)(?=[A-Z])", "_", event.__name__).lower()
    return msgspec.defstruct(event.__name__, fields, frozen=True, omit_defaults=True, tag_field="kind", tag=tag)


def _has_scores(kind: Any) -> bool:
    return kind in (TokenScore, ScoreList) or any(map(_has_scores, get_args(kind)))


_LINES = {event: _line_type(event) for event in get_args(Event)}
_EVENTS = {line: event for event, line in _LINES.items()}
_VALUES = {
    event: itemgetter(*(event._fields.index(name) for name in line.__struct_fields__)) for event, line in _LINES.items()
}
WRITTEN: Any = Union[(*get_args(Input), *_EVENTS)]  # the types of lines


def line_of(event: Event) -> msgspec.Struct:
    kind = type(event)
    return _LINES[kind](*_VALUES[kind](event))


def read(line: Any) -> AnyLine:
    """The input or event of a decoded line; events without scores."""
    kind = _EVENTS.get(type(line))
    found: AnyLine = line if kind is None else kind(**msgspec.structs.asdict(line))
    return found
