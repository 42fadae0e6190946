"""Chat messages to a prompt, by the model's own template.

A template that is missing, fails or refuses is an error of `messages`. The template writes the first token itself:
encode its text with `add_special=False`. Control tokens in that text may have other names (see `controls`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.tools.history import variants
from chairlift.text.template import run
from chairlift.text.template_limits import TemplateFails, TemplateTooCostly
from chairlift.text.tokenizer import Tokenizer

Chat = list[dict[str, Any]]
_Run = Callable[[Tokenizer, Chat, bool, dict[str, Any]], str]
_OWN_NAMES = ("messages", "add_generation_prompt", "tools", "documents")
_EXAMPLE = '[{"role": "user", "content": "Hello"}]'
# Put behind the text to continue, with a space; the prompt is cut where it appears.
_CUT_MARK = "\u2402chairlift-cut\u2403"
_USER, _ASSISTANT = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
_TRIED: tuple[Chat, ...] = ([_USER], [_USER, _ASSISTANT, _USER], [{"role": "system", "content": "c"}, _USER])


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
    escape_special_tokens: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Messages with calls, and `tools`, are as `responses.tools.history` prepares them."""
    if tokenizer.chat_template is None:
        way_out = "give one (--chat-template), or send text (/v1/completions, LLM.generate)"
        raise InvalidRequest("messages", f"the model has no chat template; {way_out}")
    if continue_final_message and add_generation_prompt:
        raise InvalidRequest("continue_final_message", "cannot be combined with add_generation_prompt")
    extra = dict(template_kwargs or {})
    check_names(extra)
    if tools:
        extra["tools"] = [dict(tool) for tool in tools]
    chat = _plain(messages)
    if continue_final_message and chat[-1].get("tool_calls"):
        raise InvalidRequest("continue_final_message", "the final message holds calls, which cannot be continued")
    if continue_final_message:
        chat[-1]["content"] += _CUT_MARK + " "
    run_template = _escaped if escape_special_tokens else _rendered
    try:
        text = _with_calls(run_template, tokenizer, chat, add_generation_prompt, extra)
    except TemplateFails as error:
        why = tokenizer.controls.disclaim(str(error))
        raise InvalidRequest("messages", f"the chat template {why}") from error
    text = _cut(text) if continue_final_message else text
    return tokenizer.controls.wrap(text) if escape_special_tokens else text


def check_names(template_kwargs: Iterable[str]) -> None:
    taken = next((name for name in _OWN_NAMES if name in template_kwargs), None)
    if taken is not None:
        raise InvalidRequest("chat_template_kwargs", f"must not hold {taken}")


def _with_calls(run_template: _Run, tokenizer: Tokenizer, chat: Chat, adds: bool, extra: dict[str, Any]) -> str:
    """Templates differ in how they want calls, and fail on other forms; the first failure counts."""
    first: TemplateFails | None = None
    for form in chain([chat], variants(chat)):
        try:
            return run_template(tokenizer, form, adds, extra)
        except TemplateTooCostly:
            raise
        except TemplateFails as error:
            first = first or error
    assert first is not None
    raise first


def _rendered(
    tokenizer: Tokenizer, chat: Chat, add_generation_prompt: bool, extra: dict[str, Any], claims: bool = False
) -> str:
    assert tokenizer.chat_template is not None
    template, tokens = tokenizer.chat_template, tokenizer.template_tokens
    if claims:
        template = tokenizer.controls.claimed(template)
        tokens = {name: tokenizer.controls.claim(token) for name, token in tokens.items()}
    own = {"messages": chat, "tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
    return run(template, own | tokens | extra)


def _escaped(tokenizer: Tokenizer, chat: Chat, add_generation_prompt: bool, extra: dict[str, Any]) -> str:
    """With own names for the template's control tokens, so that a client's are text."""
    controls = tokenizer.controls
    if _is_claimable(tokenizer):
        return _rendered(tokenizer, chat, add_generation_prompt, extra, claims=True)
    try:
        chat, extra = controls.mask(chat), controls.mask(extra)
    except RecursionError as error:
        raise TemplateFails("is given values that are nested too deeply") from error
    return controls.unmask(controls.claim(_rendered(tokenizer, chat, add_generation_prompt, extra)))


@lru_cache(maxsize=8)
def _is_claimable(tokenizer: Tokenizer) -> bool:
    """Whether the template has all names of control tokens literally, tried on conversations without any."""
    results = set()
    for chat in _TRIED:
        for adds in (True, False):
            try:
                wanted = tokenizer.controls.claim(_rendered(tokenizer, chat, adds, {}))
            except TemplateFails:  # it accepts no such conversation
                continue
            try:
                results.add(_rendered(tokenizer, chat, adds, {}, claims=True) == wanted)
            except TemplateFails:
                results.add(False)
    return results == {True}


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy of the messages with content as text."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidRequest("messages", f"must be a list such as {_EXAMPLE}, got {type(messages).__name__}")
    if not messages:
        raise InvalidRequest("messages", "must not be empty")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidRequest(f"messages[{i}]", f"must have a role, as in {_EXAMPLE}")
    return [{**message, "content": _content_of(i, message)} for i, message in enumerate(messages)]


def _content_of(index: int, message: Mapping[str, Any]) -> str | None:
    """None only beside calls: a template may ask for it."""
    content = message.get("content")
    return None if content is None and message.get("tool_calls") else _content(index, content)


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
        why = "holds half of a surrogate pair, which is not text"
        raise InvalidRequest(f"messages[{index}].content", why) from error
    return text


def _cut(text: str) -> str:
    before, mark, after = text.rpartition(_CUT_MARK)
    if not mark:
        raise InvalidRequest("continue_final_message", "the chat template does not show the final message")
    # A template that trims the space behind the mark trims the end of the text too.
    return before if after.startswith(" ") else before.rstrip()
