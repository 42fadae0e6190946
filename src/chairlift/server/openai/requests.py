"""The bodies of the OpenAI routes, field by field. Types only: what a value may be is checked where it is used."""

from typing import Any

import msgspec

from chairlift.server.openai.fields import Int


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What completions and chat completions have in common."""

    model: str | None = None
    max_tokens: Int | None = None
    min_tokens: Int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    n: Int | None = None
    best_of: Int | None = None
    use_beam_search: bool | None = None
    beam_width: Int | None = None
    length_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: Int | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None
    user: str | None = None
    deadline_s: float | None = None
    timeout: float | None = None


class CompletionRequest(SamplingRequest, frozen=True, kw_only=True):
    prompt: str | list[str | Int | list[Int]]
    echo: bool | None = None
    logprobs: Int | None = None
    add_special_tokens: bool | None = None


class ContentPart(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: Any = None
    tool_call_id: Any = None
    function_call: Any = None
    audio: Any = None


class ChatRequest(SamplingRequest, frozen=True, kw_only=True):
    messages: list[Message]
    max_completion_tokens: Int | None = None
    logprobs: bool | None = None
    top_logprobs: Int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    tokens: list[Int]
