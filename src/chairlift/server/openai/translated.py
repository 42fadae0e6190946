"""The body of another API as that of a chat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from chairlift.server.openai.fields import Body
from chairlift.server.openai.requests import ChatRequest


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
