"""An answer gathered from the events of its reader: in pieces as they are complete, or whole."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from chairlift.text.responses.reading.events import CallArguments, CallBegins, CallEnds, Content, Event, Reasoning


@dataclass(slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str = ""  # JSON, unless the answer was cut inside it


Piece = Content | Reasoning | ToolCall


@dataclass(slots=True)
class Gathered:
    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)


class Pieces:
    """The pieces of one answer: texts as they come, a call once it ends."""

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self._open: dict[int, tuple[str, list[str]]] = {}  # name and arguments of calls, by index

    def of(self, events: Iterable[Event]) -> Iterator[Piece]:
        for event in events:
            match event:
                case CallBegins(index, name):
                    self._open[index] = (name, [])
                case CallArguments(index, text):
                    self._open[index][1].append(text)
                case CallEnds(index):
                    name, arguments = self._open.pop(index)
                    yield ToolCall(self._new_call_id(), name, "".join(arguments))
                case _:
                    yield event


def gathered(events: Iterable[Event], new_call_id: Callable[[], str]) -> Gathered:
    content, reasoning = [], []
    found = Gathered()
    for piece in Pieces(new_call_id).of(events):
        match piece:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case ToolCall():
                found.calls.append(piece)
    found.content, found.reasoning = "".join(content), "".join(reasoning)
    return found
