"""The body of POST /v1/responses, field by field. Types only: values are checked where they are translated."""

from functools import partial
from typing import Any

import msgspec

from chairlift.server.openai.fields import Body, Int
from chairlift.server.openai.requests import asking


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a message, of a tool's output or of reasoning."""

    type: str
    text: str | None = None
    refusal: str | None = None
    annotations: Any = None
    logprobs: Any = None


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A message, a call, its output, or reasoning; a message may leave out its type."""

    type: str = "message"
    id: str | None = None
    status: str | None = None
    role: str | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None  # of a call of a custom tool
    output: str | list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    phase: str | None = None


class ReasoningOptions(msgspec.Struct, frozen=True, kw_only=True):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


_KEPT = "this server keeps no responses; send the conversation as input"
_OF_CHAT = "is a field of chat completions; here it is"
_REFUSED = {
    "previous_response_id": _KEPT,
    "conversation": _KEPT,
    "prompt": "this server keeps no prompts; send instructions and input",
    "background": "this server keeps no responses; ask for a stream",
    "messages": f"{_OF_CHAT} input",
    "max_tokens": f"{_OF_CHAT} max_output_tokens",
    "max_completion_tokens": f"{_OF_CHAT} max_output_tokens",
    "response_format": f"{_OF_CHAT} text.format",
    "reasoning_effort": f"{_OF_CHAT} reasoning.effort",
}
_NOT_OF_RESPONSES = ("max_tokens", "n", "best_of", "beam_width", "length_penalty", "logprobs", "prompt_logprobs")


@partial(asking, without=_NOT_OF_RESPONSES)
class ResponseRequest(Body, frozen=True, kw_only=True):
    refused = _REFUSED
    input: str | list[Item]
    instructions: str | None = None
    max_output_tokens: Int | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    top_logprobs: Int | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    user: str | None = None
    # Told back, without effect: nothing is billed, kept or looked up here.
    max_tool_calls: Int | None = None  # of tools that a server runs
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Extensions, as of chat bodies.
    structured_outputs: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    thinking_budget: Int | None = None  # tokens
    timeout: float | None = None
