"""Messages with calls and their results, as a chat template wants them.

Always: the caller's messages stay as they are; calls and results keep belonging together; what is not well formed is
refused with its place. Where a chat template knows no tools, they are explained in the system message, calls are text
of the assistant, and results turns of the user.
"""

import hashlib
import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.templates.template import ResponseTemplate
from chairlift.text.responses.tools.writer import write_calls
from chairlift.text.structured.source import TOO_DEEP, is_deep

Chat = list[dict[str, Any]]
_DIGITS = string.digits + string.ascii_letters
_ASKS_FOR_NONE = re.compile(r"(?<!_)content(?:['\"]\])?\s+is\s+(?:not\s+)?none")
_INSTRUCTION = """You may call functions to help with the request. They are, one in a line as JSON:
<tools>
{tools}
</tools>

To call one, write its name and its arguments in this form, and nothing behind it:
{example}
Then its result is given to you. Answer without a call where none is needed."""
_KNOWS_TOOLS = re.compile(r"\btools\b")


def prepared(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    template: ResponseTemplate | None,
    chat_template: str | None,
) -> tuple[Chat, list[dict[str, Any]] | None]:
    """The messages, and the tools that the chat template is to be given."""
    chat = [_message(index, message, template, chat_template or "") for index, message in enumerate(messages)]
    if template is not None and template.can_call and not template.can_repeat:
        chat = _one_by_one(chat)
    if "tool_responses" in (chat_template or "") and "tool_call_id" not in (chat_template or ""):
        chat = _with_responses(chat)
    if template is not None and template.adds_tools:
        return _explained(_as_text(chat), tools, template), None
    if template is not None and template.can_call and not _KNOWS_TOOLS.search(chat_template or ""):
        return _explained(chat, tools, template), None
    return chat, [dict(tool) for tool in tools] or None


def call_id(template: ResponseTemplate | None, given: str) -> str:
    """The same id in the form that the chat template takes."""
    if template is None or template.ids == "any" or re.fullmatch("[A-Za-z0-9]{9}", given):
        return given
    number = int.from_bytes(hashlib.sha256(given.encode(errors="replace")).digest()[:8])
    return "".join(_DIGITS[number // 62**place % 62] for place in range(9))


def variants(chat: Sequence[Mapping[str, Any]]) -> Iterator[Chat]:
    """Other forms of messages with calls, for templates that fail on the first: arguments as JSON text, and no content
    as an empty text."""
    if any(message.get("tool_calls") for message in chat):
        yield [_changed(message, as_text=True, fills=False) for message in chat]
        yield [_changed(message, as_text=False, fills=True) for message in chat]
        yield [_changed(message, as_text=True, fills=True) for message in chat]


def _changed(message: Mapping[str, Any], as_text: bool, fills: bool) -> dict[str, Any]:
    made = dict(message)
    if made.get("tool_calls") and as_text:
        made["tool_calls"] = [_texted(call) for call in made["tool_calls"]]
    if made.get("content") is None and fills:
        made["content"] = ""
    return made


def _texted(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": function | {"arguments": json.dumps(function["arguments"], ensure_ascii=False)}}


def _message(
    index: int, message: Mapping[str, Any], template: ResponseTemplate | None, chat_template: str
) -> dict[str, Any]:
    place, made = f"messages[{index}]", dict(message)
    calls = made.pop("tool_calls", None)
    if calls:
        made["tool_calls"] = [
            _call(f"{place}.tool_calls[{i}]", each, template) for i, each in enumerate(_list(place, calls))
        ]
        if not made.get("content"):
            made["content"] = None if _ASKS_FOR_NONE.search(chat_template) else ""
    if isinstance(made.get("tool_call_id"), str):
        made["tool_call_id"] = call_id(template, made["tool_call_id"])
    thought = made.get("reasoning_content")
    if thought and ("message.thinking" in chat_template or "'thinking'" in chat_template):
        made.setdefault("thinking", thought)
    return made


def _list(place: str, calls: Any) -> Sequence[Any]:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise InvalidRequest(f"{place}.tool_calls", "must be a list of calls")
    return calls


def _call(place: str, call: Any, template: ResponseTemplate | None) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest(f"{place}.function", "must be an object with a name and arguments")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except RecursionError as error:
            raise InvalidRequest(f"{place}.function.arguments", f"is {TOO_DEEP}") from error
        except ValueError as error:
            raise InvalidRequest(f"{place}.function.arguments", f"must be a JSON object: {error}") from error
    if not isinstance(arguments, Mapping):
        raise InvalidRequest(f"{place}.function.arguments", "must be a JSON object")
    if is_deep(arguments):
        raise InvalidRequest(f"{place}.function.arguments", f"is {TOO_DEEP}")
    given = call.get("id")
    named = {"id": call_id(template, given)} if isinstance(given, str) else {}
    return {**named, "type": "function", "function": {"name": function["name"], "arguments": dict(arguments)}}


def _one_by_one(chat: Chat) -> Chat:
    """A message with several calls as several, each with its results behind it, for families that write one at a time;
    their templates refuse more, or leave them out."""
    made: Chat = []
    waiting: dict[Any, Chat] = {}  # calls that come once results to earlier ones are over, by id
    for message in chat:
        calls: list[Any] = message.get("tool_calls") or []
        if message.get("role") != "tool":
            made += [each for later in waiting.values() for each in later]
            waiting = {}
        if message.get("role") == "tool" and message.get("tool_call_id") in waiting:
            made += waiting.pop(message["tool_call_id"])
        made.append(message if len(calls) < 2 else message | {"tool_calls": [calls[0]]})
        empty = None if message.get("content") is None else ""
        for i, call in enumerate(calls[1:]):
            waiting[call.get("id", i)] = [{"role": message["role"], "content": empty, "tool_calls": [call]}]
    return made + [each for later in waiting.values() for each in later]


def _with_responses(chat: Chat) -> Chat:
    """Results as a field of the message that called, `tool_responses`, for templates that know no role `tool`."""
    made: Chat = []
    for message in chat:
        calls: list[Any] = (made[-1].get("tool_calls") if made else None) or []
        if message.get("role") != "tool" or not calls:
            made.append(dict(message))
            continue
        of_call = (call["function"]["name"] for call in calls if call.get("id") == message.get("tool_call_id"))
        name = next(of_call, message.get("name") or calls[0]["function"]["name"])
        made[-1].setdefault("tool_responses", []).append({"name": name, "response": _content(message)})
    return made


def _as_text(chat: Chat) -> Chat:
    """Calls and results as texts of assistant and user; neighbouring results are one turn."""
    made: Chat = []
    for message in chat:
        if message.get("role") == "tool":
            text = f"<tool_response>\n{_content(message)}\n</tool_response>"
            if made and made[-1].get("role") == "user" and made[-1].get("is_result"):
                made[-1]["content"] += "\n" + text
            else:
                made.append({"role": "user", "content": text, "is_result": True})
            continue
        calls = message.pop("tool_calls", None) or ()
        texts = [_content(message)] if _content(message) else []
        texts += [_written(call["function"]) for call in calls]
        made.append(message | {"content": "\n".join(texts)} if calls else message)
    return [{key: value for key, value in message.items() if key != "is_result"} for message in made]


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))


def _written(function: Mapping[str, Any]) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def _explained(chat: Chat, tools: Sequence[Mapping[str, Any]], template: ResponseTemplate) -> Chat:
    """The system message says which tools there are and how to call them."""
    if not tools:
        return chat
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = _INSTRUCTION.format(tools=listed, example=write_calls(template, [("<name>", {"<argument>": "<value>"})]))
    if chat and chat[0].get("role") == "system":
        return [chat[0] | {"content": f"{_content(chat[0])}\n\n{text}"}, *chat[1:]]
    return [{"role": "system", "content": text}, *chat]
