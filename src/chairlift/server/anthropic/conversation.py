"""Anthropic's messages as a chat body has them, and the place each came from.

Always: neighbours of one role are one message, as Anthropic has it; results of tools come before the text beside them.
"""

from collections.abc import Sequence
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.server.anthropic.request import InputBlock, InputMessage, InputText
from chairlift.server.anthropic.tools import Names
from chairlift.server.openai.requests import Message
from chairlift.server.openai.translated import Draft

_KINDS = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}
_OWNERS = {"tool_result": "user", "thinking": "assistant", "redacted_thinking": "assistant", "tool_use": "assistant"}


class Conversation:
    """Raises `InvalidRequest` by the client's names; `names` gives those for errors of the chat body."""

    def __init__(self, system: str | Sequence[InputText] | None, messages: Sequence[InputMessage]) -> None:
        self.names: Names = {}
        self._turns: list[Draft] = []
        if system:
            self._turn("system", "system").texts.append(_text("system", system))
        for index, message in enumerate(messages):
            self._add(f"messages[{index}]", message)

    @property
    def is_continued(self) -> bool:
        """The answer goes on where the last message ends, which is the assistant's."""
        return bool(self._turns) and self._turns[-1].role == "assistant"

    @property
    def ends_in_calls(self) -> bool:
        return bool(self._turns) and bool(self._turns[-1].calls)

    def messages(self) -> list[Message]:
        return [turn.message() for turn in self._turns]

    def _add(self, where: str, message: InputMessage) -> None:
        role, content = message.role, message.content
        if role not in _KINDS:
            raise InvalidRequest(f"{where}.role", f"must be one of {', '.join(_KINDS)}, got {role[:40]!r}")
        if isinstance(content, str):
            self._turn(role, where).texts.append(content)
            return
        if not content and role != "assistant":
            raise InvalidRequest(f"{where}.content", "must not be empty")
        blocks = [(f"{where}.content[{index}]", block) for index, block in enumerate(content)]
        for place, block in blocks:
            _check_kind(place, block, role)
            if block.type == "tool_result":
                self._add_result(place, block)
        others = [(place, block) for place, block in blocks if block.type != "tool_result"]
        if others or role == "assistant":
            turn = self._turn(role, where)
            for place, block in others:
                self._add_block(turn, place, block)

    def _turn(self, role: str, where: str) -> Draft:
        """The last one, if it has the role."""
        if not self._turns or self._turns[-1].role != role or role == "tool":
            self.names[f"messages[{len(self._turns)}]"] = where
            self._turns.append(Draft(role))
        return self._turns[-1]

    def _add_result(self, place: str, block: InputBlock) -> None:
        turn = self._turn("tool", place)
        self.names[f"messages[{len(self._turns) - 1}].tool_call_id"] = f"{place}.tool_use_id"
        turn.answers = _required(place, block, "tool_use_id")
        text = "" if block.content is None else _text(f"{place}.content", block.content)
        turn.texts.append(f"Error: {text}" if block.is_error else text)

    def _add_block(self, turn: Draft, place: str, block: InputBlock) -> None:
        match block.type:
            case "text":
                turn.texts.append(_required(place, block, "text"))
            case "thinking":
                turn.thoughts.append(_required(place, block, "thinking"))
            case "tool_use":
                ours = f"messages[{len(self._turns) - 1}].tool_calls[{len(turn.calls)}]"
                self.names |= {ours: place, f"{ours}.function.arguments": f"{place}.input"}
                name, arguments = _required(place, block, "name"), _required(place, block, "input")
                turn.calls.append({"id": block.id, "function": {"name": name, "arguments": arguments}})


def _check_kind(place: str, block: InputBlock, role: str) -> None:
    if block.type in _KINDS[role]:
        return
    owner = _OWNERS.get(block.type)
    why = f"{block.type[:40]!r} is not supported; send text"
    raise InvalidRequest(f"{place}.type", why if owner is None else f"{block.type} belongs to messages of the {owner}")


def _text(where: str, content: str | Sequence[InputText]) -> str:
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type != "text":
            raise InvalidRequest(f"{where}[{index}].type", f"{part.type[:40]!r} is not supported; send text")
    return "\n".join(_required(f"{where}[{index}]", part, "text") for index, part in enumerate(content))


def _required(place: str, block: InputText, name: str) -> Any:
    value = getattr(block, name)
    if value is None:
        raise InvalidRequest(f"{place}.{name}", "is required")
    return value
