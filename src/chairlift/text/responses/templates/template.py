"""How a family of models writes its answers: where reasoning stands, how a call of a tool is written, which marks
delimit them. One such value makes both the reader of answers and the grammar that holds a model to them.

Always: plain frozen data; an empty mark is one that the family does not write. Knows nothing of texts or tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Span:
    open: str
    close: str


@dataclass(frozen=True, slots=True)
class JsonCall:
    """`{"name": "f", "arguments": {...}}`, or a list of such objects."""

    arguments: str = "arguments"  # the key; readers take "parameters" for it too
    is_list: bool = False
    says_type: bool = False  # may begin with `"type": "function", `
    says_id: bool = False  # may end with `, "id": "..."`


@dataclass(frozen=True, slots=True)
class NamedCall:
    """The name, a mark, and the arguments in JSON: `f[ARGS]{...}`."""

    between: str
    before: str = ""
    after: str = ""
    id_mark: str = ""  # `f[CALL_ID]abc[ARGS]{...}`: an id may stand before the mark between


@dataclass(frozen=True, slots=True)
class TaggedCall:
    """A tag with the name around a tag for each argument: `<function=f><parameter=a>1</parameter></function>`."""

    name: Span
    key: Span
    value: Span
    close: str = ""

    @property
    def has_lines(self) -> bool:
        """Whether a line break on either side of a value belongs to its tags: they have no mark for its beginning."""
        return not self.value.open


@dataclass(frozen=True, slots=True)
class PythonCall:
    """`f(a=1, b="x")`, one a line or several in a list."""

    is_list: bool = True


@dataclass(frozen=True, slots=True)
class BracedCall:
    """`f{a:1,b:<|"|>x<|"|>}`: like JSON, with bare keys in the order of their names, and a mark around strings."""

    quote: str


Notation = JsonCall | NamedCall | TaggedCall | PythonCall | BracedCall


@dataclass(frozen=True, slots=True)
class Calls:
    notation: Notation
    open: str = ""  # before each call; empty: the call is bare, and begins where the answer does
    close: str = ""
    section: Span | None = None  # around all calls of an answer
    lead: str = ""  # may stand before a bare call, and then anywhere in the answer
    can_repeat: bool = True

    @property
    def mark(self) -> str:
        """What opens the first call of several; empty for one that is bare and has no lead."""
        return self.section.open if self.section else self.open or self.lead


@dataclass(frozen=True, slots=True)
class Channels:
    """An answer of several messages, each behind a header that names its channel; a call is a message to a tool."""

    channel: str
    message: str  # between a header and its text
    start: str  # of each header but the first, which the prompt has begun
    end: str  # of a message that another follows
    last: tuple[str, ...]  # ends of the answer
    constrain: str
    role: str = "assistant"
    reasoning: str = "analysis"
    content: tuple[str, ...] = ("final", "commentary")
    calls: str = "commentary"
    recipient: str = "to=functions."


@dataclass(frozen=True, slots=True)
class ResponseTemplate:
    name: str
    reasoning: Span | None = None  # only where an answer begins; a chat template may have opened it in the prompt
    calls: Calls | None = None
    channels: Channels | None = None
    ids: Literal["any", "nine"] = "any"  # of calls: exactly nine letters or digits
    adds_tools: bool = False  # the chat template knows no tools: instruction and tools go into the system message
    marks: frozenset[str] = field(init=False, default=frozenset())  # all literals that hold a mark

    def __post_init__(self) -> None:
        parts = (self.reasoning, self.calls, self.channels)
        object.__setattr__(self, "marks", frozenset(text for part in parts for text in _texts(part)))

    @property
    def can_call(self) -> bool:
        return self.calls is not None or self.channels is not None

    @property
    def can_repeat(self) -> bool:
        """Whether one answer may hold several calls."""
        return self.calls is not None and self.calls.can_repeat


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str) and part:
        yield part
    elif isinstance(part, tuple):
        yield from (text for each in part for text in _texts(each))
    elif is_dataclass(part):
        yield from (text for each in fields(part) for text in _texts(getattr(part, each.name)))
