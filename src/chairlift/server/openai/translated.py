"""The body of another API as that of a chat.

A message of a chat body while it is put together from the pieces of another body.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from chairlift.server.openai.fields import Body
from chairlift.server.openai.requests import ChatRequest, Message


@dataclass(slots=True)
class Draft:
    """Texts of the assistant are joined as they are, those of others, and thoughts, by a line break."""

    role: str
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    answers: str | None = None  # the id of the call that it is the result of

    def message(self) -> Message:
        return Message(
            role=self.role,
            content=("" if self.role == "assistant" else "\n").join(self.texts),
            reasoning_content="\n".join(self.thoughts) or None,
            tool_calls=self.calls or None,
            tool_call_id=self.answers,
        )


@dataclass(frozen=True, slots=True)
class Translated:
    chat: ChatRequest
    names: Mapping[str, str]  # fields of the chat body, and what the client's body calls them
    ignored: Sequence[str]  # fields without effect


def alike(request: Body) -> dict[str, Any]:
    """The fields that a chat body has by the same names; those that mean something else are to be overwritten."""
    return {name: getattr(request, name) for name in _names(type(request))}


@cache
def _names(kind: type[Body]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name in ChatRequest.__struct_fields__)
