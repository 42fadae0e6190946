"""The messages of a chat body as a chat template takes them; calls and their results belong together.

Always: the older `function_call` and role `function` become calls and results of tools; errors name the place.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from chairlift.core.errors import InvalidRequest
from chairlift.server.openai.requests import ContentPart, Message

MAX_MESSAGES = 4096  # a template takes microseconds for each, in which other requests wait
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
          "function": "tool"}  # fmt: skip
_KNOWN = frozenset(_ROLES.values())
_OTHER_ROLE = re.compile(r"[A-Za-z0-9_-]{1,64}")  # "ipython" and the like, which some templates know
_OF_ASSISTANT = ("tool_calls", "function_call", "reasoning_content", "reasoning", "refusal")
_of_assistant_alone = attrgetter(*_OF_ASSISTANT)


class _Called(NamedTuple):
    """What earlier messages call."""

    names: dict[str, str]  # of the tools, by the ids of their calls
    last: dict[str, str]  # call of each tool


def chat_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    if not messages:
        raise InvalidRequest("messages", "must not be empty")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest("messages", f"must hold at most {MAX_MESSAGES} messages, got {len(messages)}")
    called = _Called({}, {})
    return [_message(f"messages[{index}]", message, called) for index, message in enumerate(messages)]


def _message(where: str, message: Message, called: _Called) -> dict[str, Any]:
    if message.audio:
        raise InvalidRequest(f"{where}.audio", "is not supported by this server; leave it out")
    role = _ROLES.get(message.role, message.role)
    if not _OTHER_ROLE.fullmatch(role):
        kinds = f"{', '.join(_ROLES)}, or another word that the chat template knows"
        raise InvalidRequest(f"{where}.role", f"must be one of {kinds}, got {role[:40]!r}")
    made: dict[str, Any] = {"role": role, "content": _content(where, message)}
    if message.name is not None:
        made["name"] = message.name
    if role == "assistant":
        return made | _of_assistant(where, message, called)
    if any(_of_assistant_alone(message)):
        misplaced = next(name for name in _OF_ASSISTANT if getattr(message, name))
        raise InvalidRequest(f"{where}.{misplaced}", "belongs to messages of the assistant")
    if role == "tool":
        return made | _of_result(where, message, called)
    if message.tool_call_id is not None:
        raise InvalidRequest(f"{where}.tool_call_id", "belongs to messages of the role tool")
    return made


def _content(where: str, message: Message) -> str | None:
    if message.content is None:
        if message.role == "assistant" and (message.tool_calls or message.function_call):
            return None
        if message.role == "assistant" and (message.reasoning_content or message.reasoning or message.refusal):
            return message.refusal or ""
        raise InvalidRequest(f"{where}.content", "is required")
    return message.content if isinstance(message.content, str) else _joined(where, message.content)


def _joined(where: str, parts: list[ContentPart]) -> str:
    for index, part in enumerate(parts):
        if part.type not in ("text", "refusal"):
            raise InvalidRequest(f"{where}.content[{index}].type", f"{part.type[:40]!r} is not supported; send text")
        if _text(part) is None:
            raise InvalidRequest(f"{where}.content[{index}].{part.type}", "is required")
    return "".join(_text(part) or "" for part in parts)


def _text(part: ContentPart) -> str | None:
    return part.refusal if part.type == "refusal" else part.text


def check_roles(messages: Sequence[Mapping[str, Any]], prompt: Callable[[], str]) -> None:
    """Refuses messages of other roles that the chat template has left out of the prompt."""
    others = {index: message for index, message in enumerate(messages) if message["role"] not in _KNOWN}
    text = prompt() if others else ""
    for index, message in others.items():
        if (message["content"] or "").strip() not in text:
            role = message["role"]
            raise InvalidRequest(f"messages[{index}].role", f"the chat template leaves out what the role {role!r} says")


def _of_assistant(where: str, message: Message, called: _Called) -> dict[str, Any]:
    if message.tool_call_id is not None:
        raise InvalidRequest(f"{where}.tool_call_id", "belongs to messages of the role tool")
    thought = message.reasoning_content or message.reasoning
    made: dict[str, Any] = {"reasoning_content": thought} if thought else {}
    if message.tool_calls and message.function_call:
        raise InvalidRequest(f"{where}.function_call", "is the older form of tool_calls; give one of them")
    calls = message.tool_calls
    if message.function_call:
        if not isinstance(message.function_call.get("name"), str):
            raise InvalidRequest(f"{where}.function_call.name", "is required, and is text")
        calls = [{"id": f"call_{where}", "type": "function", "function": message.function_call}]
    for index, call in enumerate(calls or ()):
        _note(f"{where}.tool_calls[{index}]", call, called)
    return made | {"tool_calls": calls} if calls else made


def _note(where: str, call: dict[str, Any], called: _Called) -> None:
    """What is inside `function` is checked where the call is prepared for the template."""
    call_id, function = call.get("id"), call.get("function")
    if not isinstance(call_id, str) or not call_id:
        raise InvalidRequest(f"{where}.id", "is required, and is text")
    if call.get("type", "function") != "function":
        raise InvalidRequest(f"{where}.type", f'must be "function", got {str(call["type"])[:40]!r}')
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest(f"{where}.function", "must be an object with a name and arguments")
    called.names[call_id] = function["name"]
    called.last[function["name"]] = call_id


def _of_result(where: str, message: Message, called: _Called) -> dict[str, Any]:
    """Templates differ in whether they show the id of the call, or the name of the tool."""
    call_id = message.tool_call_id
    if message.role == "function":
        if message.name is None:
            raise InvalidRequest(f"{where}.name", "is required of the role function")
        call_id = called.last.get(message.name)
        if call_id is None:
            raise InvalidRequest(f"{where}.name", f"no earlier message calls {message.name[:128]!r}")
    if call_id is None:
        raise InvalidRequest(f"{where}.tool_call_id", "is required of the role tool")
    if call_id not in called.names:
        raise InvalidRequest(f"{where}.tool_call_id", f"no earlier message has a call of the id {call_id[:128]!r}")
    return {"tool_call_id": call_id, "name": called.names[call_id]}
