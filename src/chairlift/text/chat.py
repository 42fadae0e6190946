"""Chat messages to a prompt, by the model's own template.

A template that is missing, fails or refuses is the request's error and names `messages`. The template writes the first
token itself where the model wants one: encode the text it gives with `add_special=False`, or that token stands there
twice. That text is for `encode` alone: what stands for control tokens in it may not be their names (see `controls`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.text.template import TemplateFails, run
from chairlift.text.tokenizer import Tokenizer

_OWN_NAMES = ("messages", "add_generation_prompt", "tools", "documents")
_EXAMPLE = '[{"role": "user", "content": "Hello"}]'
# Put behind the text to continue, with a space; where it shows up in the prompt, the prompt is cut.
_CUT_MARK = "\u2402chairlift-cut\u2403"


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
    escape_special_tokens: bool = True,
) -> str:
    if tokenizer.chat_template is None:
        raise InvalidRequest("messages", "the model has no chat template; use /v1/completions")
    if continue_final_message and add_generation_prompt:
        raise InvalidRequest("continue_final_message", "cannot be combined with add_generation_prompt")
    extra = dict(template_kwargs or {})
    taken = next((name for name in _OWN_NAMES if name in extra), None)
    if taken is not None:
        raise InvalidRequest("chat_template_kwargs", f"must not hold {taken}")
    chat = _plain(messages)
    if escape_special_tokens:
        chat, extra = tokenizer.controls.mask(chat), tokenizer.controls.mask(extra)
    if continue_final_message:
        chat[-1]["content"] += _CUT_MARK + " "
    variables = tokenizer.template_tokens | extra
    text = _run(tokenizer.chat_template, chat, add_generation_prompt, variables)
    text = _cut(text) if continue_final_message else text
    return tokenizer.controls.settle(text) if escape_special_tokens else text


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy of the messages whose content is text."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidRequest("messages", f"must be a list such as {_EXAMPLE}, got {type(messages).__name__}")
    if not messages:
        raise InvalidRequest("messages", "must not be empty")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidRequest(f"messages[{i}]", f"must have a role, as in {_EXAMPLE}")
    return [{**message, "content": _content(i, message.get("content"))} for i, message in enumerate(messages)]


def _content(index: int, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return _whole(index, content)
    if not isinstance(content, list):
        raise InvalidRequest(f"messages[{index}].content", "must be a string or a list of text parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InvalidRequest(f"messages[{index}].content", f"only text parts are supported, got {kind!r}")
        texts.append(part["text"])
    return _whole(index, "".join(texts))


def _whole(index: int, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"messages[{index}].content", "holds half of a surrogate pair, which is not text"
        ) from error
    return text


def _run(template: str, chat: list[dict[str, Any]], add_generation_prompt: bool, variables: dict[str, Any]) -> str:
    own = {"messages": chat, "tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
    try:
        return run(template, own | variables)
    except TemplateFails as error:
        raise InvalidRequest("messages", f"the chat template {error}") from error


def _cut(text: str) -> str:
    before, mark, after = text.rpartition(_CUT_MARK)
    if not mark:
        raise InvalidRequest("continue_final_message", "the chat template does not show the final message")
    # A template that trimmed the space behind the mark would have trimmed the end of the text too.
    return before if after.startswith(" ") else before.rstrip()
