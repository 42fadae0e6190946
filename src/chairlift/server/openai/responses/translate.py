"""A response's body as that of a chat, with the names of fields for errors.

Always: what asks for kept responses, or for tools that this server would have to run, is refused by name; a tool that
the model could do without is left out, and reported.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.server.openai.requests import ChatRequest
from chairlift.server.openai.responses.custom import function_of
from chairlift.server.openai.responses.items import Messages
from chairlift.server.openai.responses.namespaces import Tools, functions_of, named, namespaced
from chairlift.server.openai.responses.request import ResponseRequest
from chairlift.server.openai.translated import Translated, alike

LOGPROBS = "message.output_text.logprobs"
_HOSTED = ("web_search", "file_search", "code_interpreter", "image_generation", "tool_search")


def translate(request: ResponseRequest) -> Translated:
    if request.truncation not in (None, "disabled", "auto"):
        raise InvalidRequest("truncation", f'must be "disabled" or "auto", got {request.truncation[:40]!r}')
    messages = _messages(request)
    names = {"messages": "input", "reasoning_effort": "reasoning.effort"}
    names |= dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_output_tokens")
    names |= {"response_format": "text.format", "response_format.json_schema": "text.format"} | messages.names
    ignored: list[str] = []
    tools = _tools(request, names, ignored)
    reasoning = request.reasoning
    if reasoning is not None:
        ignored += [f"reasoning.{name}" for name in ("summary", "generate_summary") if getattr(reasoning, name)]
    if request.text is not None and request.text.verbosity is not None:
        ignored.append("text.verbosity")
    if request.truncation == "auto":  # nothing is cut from a conversation here
        ignored.append("truncation")
    ignored += [f"include[{i}]" for i, name in enumerate(request.include or ()) if name != LOGPROBS]
    ignored += messages.ignored
    shows_logprobs = bool(request.top_logprobs) or LOGPROBS in (request.include or ())
    fields = alike(request) | {
        "messages": messages.made,
        "max_completion_tokens": request.max_output_tokens,
        "tools": [{"type": "function", "function": _without_type(tool)} for tool in tools] or None,
        "tool_choice": _choice(request, tools, names),
        "response_format": _format(request),
        "reasoning_effort": None if reasoning is None else reasoning.effort,
        "logprobs": shows_logprobs or None,
        "top_logprobs": request.top_logprobs if shows_logprobs else None,
    }
    return Translated(ChatRequest(**fields), names, ignored)


def _messages(request: ResponseRequest) -> Messages:
    messages = Messages()
    if request.instructions:
        messages.add_text("system", request.instructions, "instructions")
    if isinstance(request.input, str):
        messages.add_text("user", request.input, "input")
    elif not request.input:
        raise InvalidRequest("input", "must not be empty")
    else:
        for index, item in enumerate(request.input):
            messages.add(item, f"input[{index}]")
    messages.close()
    return messages


def _tools(request: ResponseRequest, names: dict[str, str], ignored: list[str]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for index, tool in enumerate(request.tools or ()):
        if _is_hosted(tool):
            ignored.append(f"tools[{index}]")
            continue
        for place, function in _functions(tool, f"tools[{index}]", ignored):
            names |= {f"tools[{len(kept)}]": place, f"tools[{len(kept)}].function": place}
            kept.append(function)
    return kept


def _functions(tool: dict[str, Any], place: str, ignored: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    match tool.get("type"):
        case "function":
            yield place, tool
        case "namespace":
            yield from functions_of(tool, place)
        case "custom":
            function, is_held = function_of(tool, place)
            if not is_held:
                ignored.append(f"{place}.format")
            yield place, function
        case other:
            what = f"{str(other)[:40]!r} is not supported; give tools of type function, custom or namespace"
            raise InvalidRequest(f"{place}.type", what)


def _without_type(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name != "type"}


def _choice(request: ResponseRequest, tools: Tools, names: dict[str, str]) -> str | dict[str, Any] | None:
    given = request.tool_choice
    if given == "auto" and not tools:  # those that there are were left out
        return None
    if not isinstance(given, dict):
        return given
    chosen = partial(named, names={tool.get("name") for tool in tools}, known=namespaced(request.tools or ()))
    if given.get("type") in ("function", "custom"):
        names["tool_choice.function"] = "tool_choice"
        return {"type": "function", "function": _without_type(chosen(given, "tool_choice"))}
    if given.get("type") != "allowed_tools":
        kinds = "none, auto, required, or of type function, custom or allowed_tools"
        raise InvalidRequest("tool_choice.type", f"must be {kinds}, got {str(given.get('type'))[:40]!r}")
    allowed: list[Any] = []
    for index, tool in enumerate(given["tools"] if isinstance(given.get("tools"), list) else ()):
        place = f"tool_choice.tools[{index}]"
        if not _is_hosted(tool):
            names[f"tool_choice.tools[{len(allowed)}]"] = place
            allowed.append(_of_function(chosen(tool, place)) if isinstance(tool, dict) else tool)
    return given | {"tools": allowed}


def _of_function(tool: dict[str, Any]) -> dict[str, Any]:
    return tool | {"type": "function"} if tool.get("type") == "custom" else tool


def _is_hosted(tool: Any) -> bool:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return isinstance(kind, str) and kind.startswith(_HOSTED)


def _format(request: ResponseRequest) -> dict[str, Any] | None:
    """`{"type": "json_schema", "name": ..., "schema": ..., "strict": ...}`, which chat has one level deeper."""
    given = None if request.text is None else request.text.format
    if given is None or given.get("type") != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": _without_type(given)}
