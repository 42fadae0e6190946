"""The bodies of Anthropic's routes, field by field. Types only: values are checked where they are used.

Fields that are neither here nor among the sampling parameters have no effect and are reported.
"""

from functools import partial
from typing import Any

import msgspec

from chairlift.server.anthropic.tools import ToolChoice
from chairlift.server.openai.fields import Body, Int
from chairlift.server.openai.requests import asking

_REFUSED = {"mcp_servers": "are not called by this server; offer what they do as tools"}
# Answers to a prompt are one, and have no scores; `stop_sequences` and `metadata` stand for the last two.
_NOT_ASKED = ("n", "best_of", "beam_width", "length_penalty", "logprobs", "prompt_logprobs", "stop", "user")


class InputText(msgspec.Struct, frozen=True):
    """A block of text; other kinds are read to be refused by name."""

    type: str
    text: str | None = None
    cache_control: Any = None
    citations: Any = None


class InputBlock(InputText, frozen=True):
    """A block of a message: the fields of all kinds."""

    id: str | None = None  # of tool_use
    name: str | None = None
    input: dict[str, Any] | None = None
    caller: Any = None
    tool_use_id: str | None = None  # of tool_result
    content: str | list[InputText] | None = None
    is_error: bool | None = None
    thinking: str | None = None  # of thinking
    signature: Any = None
    data: Any = None  # of redacted_thinking


class InputMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[InputBlock]


class Thinking(msgspec.Struct, frozen=True):
    type: str
    budget_tokens: Int | None = None


class OutputFormat(msgspec.Struct, frozen=True):
    type: str
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    effort: str | None = None
    format: OutputFormat | None = None


class CountTokensRequest(Body, frozen=True, kw_only=True):
    """The fields that make the prompt."""

    refused = _REFUSED
    messages: list[InputMessage]
    system: str | list[InputText] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None  # older than output_config.format
    chat_template_kwargs: dict[str, Any] | None = None
    # Labels, which change no answer.
    betas: Any = None
    cache_control: Any = None
    diagnostics: Any = None
    inference_geo: Any = None
    service_tier: Any = None
    user_profile_id: Any = None
    workspace_id: Any = None


class Metadata(msgspec.Struct, frozen=True):
    user_id: str | None = None


@partial(asking, without=_NOT_ASKED)
class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    max_tokens: Int
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    timeout: float | None = None
