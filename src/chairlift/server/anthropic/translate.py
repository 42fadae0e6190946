"""Anthropic's bodies as chat bodies, and the client's own names for the fields of those."""

from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.server.anthropic.conversation import Conversation
from chairlift.server.anthropic.request import CountTokensRequest, MessagesRequest, OutputFormat, Thinking
from chairlift.server.anthropic.tools import Names, chat_choice, chat_tools, ignored_in
from chairlift.server.openai.requests import ChatRequest
from chairlift.server.openai.translated import Translated, alike

_NAMES = {
    "prompt": "messages",
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "user": "metadata.user_id",
    "enable_thinking": "thinking.type",
    "thinking_budget": "thinking.budget_tokens",
    "reasoning_effort": "output_config.effort",
    "tool_choice.function.name": "tool_choice.name",
}
_THINKS = {"enabled": True, "disabled": False, "adaptive": None, "between_tools": None}


def translate(request: CountTokensRequest) -> Translated:
    fields, names = _fields(request)
    if isinstance(request, MessagesRequest):
        fields |= _asked(request, fields.get("thinking_budget"))
    return Translated(ChatRequest(**fields), names, list(ignored_in(request.tools or ())))


def _asked(request: MessagesRequest, budget: int | None) -> dict[str, Any]:
    """The fields that say what the answer is to be."""
    if budget is not None and budget >= request.max_tokens:
        raise InvalidRequest("thinking.budget_tokens", f"must be below max_tokens ({request.max_tokens}), got {budget}")
    return {
        "max_tokens": None,
        "max_completion_tokens": request.max_tokens,
        "stop": request.stop_sequences,
        "user": None if request.metadata is None else request.metadata.user_id,
    }


def _fields(request: CountTokensRequest) -> tuple[dict[str, Any], Names]:
    conversation = Conversation(request.system, request.messages)
    tools, tool_names = chat_tools(request.tools or ())
    choice = request.tool_choice
    place, shape = _shape(request)
    names = _NAMES | conversation.names | tool_names
    names |= {"response_format": place, "response_format.json_schema.schema": f"{place}.schema"}
    if choice is not None and choice.type == "tool":
        names["tool_choice"] = "tool_choice.name"
    if conversation.is_continued:
        last = names["continue_final_message"] = f"messages[{len(request.messages) - 1}]"
        if shape is not None:
            raise InvalidRequest(
                place, f"holds for a whole answer, and {last} of the assistant begins it; leave one out"
            )
        if conversation.ends_in_calls:
            raise InvalidRequest(
                last, "its calls have no results; a message of the user with tool_result blocks follows"
            )
    return alike(request) | _thinking(request.thinking) | {
        "messages": conversation.messages(),
        "continue_final_message": conversation.is_continued,
        "tools": tools or None,
        "tool_choice": chat_choice(choice, request.tools or ()),
        "parallel_tool_calls": False if choice is not None and choice.disable_parallel_tool_use else None,
        "reasoning_effort": None if request.output_config is None else _effort(request.output_config.effort),
        "response_format": shape,
    }, names


def _thinking(thinking: Thinking | None) -> dict[str, Any]:
    """`adaptive`, like no word of it, leaves it to the chat template."""
    if thinking is None:
        return {}
    if thinking.type not in _THINKS:
        kinds = ", ".join(_THINKS)
        raise InvalidRequest("thinking.type", f"must be one of {kinds}, got {thinking.type[:40]!r}")
    budget = thinking.budget_tokens if thinking.type == "enabled" else None
    if thinking.type == "enabled" and budget is None:
        raise InvalidRequest("thinking.budget_tokens", "is required of the type enabled")
    if budget is not None and budget < 1:
        raise InvalidRequest("thinking.budget_tokens", f"must be at least 1, got {budget}")
    return {"enable_thinking": _THINKS[thinking.type], "thinking_budget": budget}


def _effort(given: str | None) -> str | None:
    return "xhigh" if given == "max" else given


def _shape(request: CountTokensRequest) -> tuple[str, dict[str, Any] | None]:
    """And the place where the body has it."""
    config = request.output_config
    newer, older = None if config is None else config.format, request.output_format
    if newer is not None and older is not None:
        raise InvalidRequest("output_format", "is the older form of output_config.format; give one of them")
    if older is not None:
        return "output_format", _as_json("output_format", older)
    return "output_config.format", None if newer is None else _as_json("output_config.format", newer)


def _as_json(place: str, wanted: OutputFormat) -> dict[str, Any]:
    if wanted.type != "json_schema":
        raise InvalidRequest(f"{place}.type", f'must be "json_schema", got {wanted.type[:40]!r}')
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted.schema}}
