"""The bodies of the OpenAI routes, field by field. Types only: values are checked where they are used.

The fields of `SamplingParams` and `Attributes` are added to generating bodies from there, each optional and with the
JSON type of its own.
"""

from collections.abc import Collection
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from chairlift.core.attributes import ATTRIBUTES
from chairlift.core.param_types import Param
from chairlift.core.params import PARAMS
from chairlift.server.openai.fields import Body, Int
from chairlift.server.openai.structured import StructuredFields

T = TypeVar("T", bound=msgspec.Struct)
_JSON: dict[object, Any] = {
    int: Int, float: float, bool: bool, str: str, tuple[str, ...]: str | list[str], tuple[int, ...]: list[Int],
    dict[int, float]: dict[str, float],
}  # fmt: skip


def asking(kind: type[T], without: Collection[str] = ()) -> type[T]:
    """Adds a field for each parameter and attribute that the body does not declare itself."""
    known = {*kind.__struct_fields__, *without}
    stated = [param for param in (PARAMS | ATTRIBUTES).values() if param.is_public and param.name not in known]
    fields = [(param.name, _json_type(param), None) for param in stated]
    more = msgspec.defstruct(kind.__name__, fields, bases=(kind,), module=kind.__module__, frozen=True, kw_only=True)
    return cast(type[T], more)


def _json_type(param: Param) -> Any:
    # A seed may be an unsigned 64-bit number; `SamplingParams` refuses larger ones.
    is_wide = param.type is int and param.most is not None and param.most >= 2**63
    bounds = {"minimum": param.least, "maximum": param.most} if param.type in (int, float) else {}
    shown = {name: bound for name, bound in bounds.items() if bound is not None}
    return Annotated[
        (int if is_wide else _JSON[param.type]) | None, Meta(description=param.help, extra_json_schema=shown)
    ]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationRequest(StructuredFields, frozen=True, kw_only=True):
    """The fields common to completions and chat completions."""

    use_beam_search: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    timeout: float | None = None


@asking
class CompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    prompt: str | list[str | Int | list[Int]]
    echo: bool | None = None
    add_special_tokens: bool | None = None


class ContentPart(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None
    refusal: str | None = None  # of the assistant


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str | list[ContentPart] | None = None
    refusal: str | None = None  # of the assistant, in place of content
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the same, by another name
    audio: Any = None


@asking
class ChatRequest(GenerationRequest, frozen=True, kw_only=True):
    messages: list[Message]
    max_completion_tokens: Int | None = None
    logprobs: bool | None = None
    top_logprobs: Int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    functions: list[dict[str, Any]] | None = None  # the older form of tools
    function_call: str | dict[str, Any] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    thinking_budget: Int | None = None  # tokens
    thinking_token_budget: Int | None = None  # the same, by another name
    parallel_tool_calls: bool | None = None


class TokenizeRequest(Body, frozen=True, kw_only=True):
    """Either `prompt` or `messages`."""

    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    functions: list[dict[str, Any]] | None = None  # the older form of tools
    function_call: str | dict[str, Any] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    thinking_budget: Int | None = None  # tokens
    thinking_token_budget: Int | None = None  # the same, by another name


class DetokenizeRequest(Body, frozen=True, kw_only=True):
    tokens: list[Int]
