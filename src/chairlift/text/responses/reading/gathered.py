"""A whole answer, gathered from the events of its reader."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from chairlift.text.responses.reading.events import CallArguments, CallBegins, Content, Event, Reasoning


@dataclass(slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str = ""  # JSON, unless the answer was cut inside it


@dataclass(slots=True)
class Gathered:
    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)


def gathered(events: Iterable[Event], new_call_id: Callable[[], str]) -> Gathered:
    content, reasoning = [], []
    arguments: list[list[str]] = []
    found = Gathered()
    for event in events:
        match event:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallBegins(_, name):
                found.calls.append(ToolCall(new_call_id(), name))
                arguments.append([])
            case CallArguments(index, text):
                arguments[index].append(text)
    for call, pieces in zip(found.calls, arguments, strict=True):
        call.arguments = "".join(pieces)
    found.content, found.reasoning = "".join(content), "".join(reasoning)
    return found
