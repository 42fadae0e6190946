"""The objects that Anthropic's routes answer with, field by field, in order."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from chairlift.server.openai.reply import Reply


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class ThinkingTokens(msgspec.Struct, frozen=True):
    thinking_tokens: int


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int  # computed: those of the cache are apart
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens | UnsetType = UNSET  # of models that reason
    service_tier: str = "standard"


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    id: str
    role: str = "assistant"
    model: str
    content: list[Block]
    stop_reason: str | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(msgspec.Struct, frozen=True):
    input_tokens: int


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="model"):
    id: str
    display_name: str
    created_at: str  # RFC 3339
    lifecycle: str = "active"
    max_input_tokens: int
    max_tokens: int


class ModelPage(msgspec.Struct, frozen=True):
    data: list[ModelInfo]
    has_more: bool
    first_id: str
    last_id: str


def usage_of(reply: Reply) -> MessageUsage:
    """As far as the answer is made."""
    usage = reply.usage()
    num_cached, details = usage.prompt_tokens_details.cached_tokens, usage.completion_tokens_details
    return MessageUsage(
        input_tokens=usage.prompt_tokens - num_cached,
        cache_read_input_tokens=num_cached,
        output_tokens=usage.completion_tokens,
        output_tokens_details=UNSET if details is UNSET else ThinkingTokens(details.reasoning_tokens),
    )
