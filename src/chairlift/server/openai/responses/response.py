"""The response object: what is known when it begins, and what its end adds."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from chairlift.server.openai.objects import Usage
from chairlift.server.openai.reply import Reply
from chairlift.server.openai.responses.namespaces import Namespaced, namespaced
from chairlift.server.openai.responses.request import ResponseRequest

_OF_FUNCTION: dict[str, Any] = {"description": None, "parameters": None, "strict": None}  # required, may be null
MAX_SHOWN_BYTES = 64 * 1024  # of each field: longer ones are not told back


class InputDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0  # are not counted here


class OutputDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str
    background: bool = False
    error: dict[str, str] | None = None
    incomplete_details: dict[str, str] | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[dict[str, Any]]
    max_tool_calls: int | None
    parallel_tool_calls: bool
    presence_penalty: float
    frequency_penalty: float
    previous_response_id: str | None = None
    prompt_cache_key: str | None
    reasoning: dict[str, str | None]
    safety_identifier: str | None
    service_tier: str = "default"
    store: bool = False
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | UnsetType


@dataclass(frozen=True, slots=True)
class Echo:
    """The fields of a body that its response tells back, and the client's names of its functions."""

    fields: dict[str, Any]
    namespaced: Namespaced
    custom: Collection[str]  # names of custom tools

    @classmethod
    def of(cls, request: ResponseRequest) -> "Echo":
        """Of a body that was translated: its other tools were left out."""
        tools = [tool for tool in request.tools or () if tool.get("type") in ("function", "namespace", "custom")]
        effort = None if request.reasoning is None else request.reasoning.effort
        given = None if request.text is None else request.text.format
        fields = {
            "instructions": _shown(request.instructions, None),
            "max_output_tokens": request.max_output_tokens,
            "metadata": _shown(request.metadata, {}) or {},
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "reasoning": {"effort": effort, "summary": None},
            "text": {"format": _shown(given, {"type": "text"}) or {"type": "text"}},
            "tool_choice": _shown(request.tool_choice, "auto") or "auto",
            "tools": [_OF_FUNCTION | tool if tool["type"] == "function" else tool for tool in _shown(tools, [])],
            "top_logprobs": request.top_logprobs or 0,
            "user": UNSET if request.user is None else request.user,
            "max_tool_calls": request.max_tool_calls,
            "prompt_cache_key": _shown(request.prompt_cache_key, None),
            "safety_identifier": _shown(request.safety_identifier, None),
        }
        return cls(fields, namespaced(tools), {tool["name"] for tool in tools if tool["type"] == "custom"})

    def begun(self, reply: Reply) -> ResponseObject:
        return ResponseObject(
            id=reply.id,
            created_at=reply.created,
            status="in_progress",
            model=reply.model,
            output=[],
            presence_penalty=reply.params.presence_penalty,
            frequency_penalty=reply.params.frequency_penalty,
            temperature=reply.params.temperature,
            top_p=reply.params.top_p,
            **self.fields,
        )

    def ended(self, reply: Reply, output: list[dict[str, Any]], finish: str | None) -> ResponseObject:
        is_cut = finish == "length"
        return msgspec.structs.replace(
            self.begun(reply),
            status="incomplete" if is_cut else "completed",
            completed_at=None if is_cut else int(time.time()),
            incomplete_details={"reason": "max_output_tokens"} if is_cut else None,
            output=output,
            usage=_usage(reply.usage()),
        )

    def failed(self, reply: Reply, output: list[dict[str, Any]], message: str) -> ResponseObject:
        error = {"code": "server_error", "message": message}
        return msgspec.structs.replace(self.begun(reply), status="failed", output=output, error=error)


def _shown(given: Any, otherwise: Any) -> Any:
    is_long = given and len(msgspec.json.encode(given)) > MAX_SHOWN_BYTES
    return otherwise if is_long else given


def _usage(usage: Usage) -> ResponseUsage:
    thought = usage.completion_tokens_details
    return ResponseUsage(
        usage.prompt_tokens,
        InputDetails(usage.prompt_tokens_details.cached_tokens),
        usage.completion_tokens,
        OutputDetails(thought.reasoning_tokens if thought else 0),
        usage.total_tokens,
    )
