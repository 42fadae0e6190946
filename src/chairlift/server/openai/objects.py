"""The objects that the OpenAI routes answer with, field by field, in order.

Extensions are null or left out, unless a body asks for them; null are those that vLLM's clients look at.
"""

import msgspec
from msgspec import UNSET, UnsetType


class CachedTokens(msgspec.Struct, frozen=True):
    cached_tokens: int


class ReasoningTokens(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens | UnsetType = UNSET  # of models that reason


class PromptLogprob(msgspec.Struct, frozen=True):
    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class CompletionLogprobs(msgspec.Struct, frozen=True):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None  # the last: written in pieces (`with_prompt_logprobs`)


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    system_fingerprint: str | None = None


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob, frozen=True):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[ChatLogprob]
    refusal: None = None


class Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class Call(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str = "function"
    function: Function


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET  # the same, by another name
    tool_calls: list[Call] | UnsetType = UNSET
    function_call: Function | UnsetType = UNSET  # where the body has the older `functions`


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None
    token_ids: list[int] | None = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None  # the last, as in `CompletionChoice`


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "chairlift"
    root: str
    parent: str | None = None  # of an adapter: its model
    max_model_len: int
    tool_format: str | None  # how calls of tools are written; null: the model has no chat template
    exact: bool  # answers have the same bits whatever shares their steps


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: list[ModelCard]


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | UnsetType = UNSET


class Text(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str


class TokenizerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`chat_template`: the model's own; one that the operator wrote is not told."""

    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    chat_template: str | None


class Version(msgspec.Struct, frozen=True, kw_only=True):
    version: str


class Welcome(msgspec.Struct, frozen=True):
    server: str
    models: list[str]
    chat: str = "POST /v1/chat/completions"
    routes: str = "/openapi.json"
