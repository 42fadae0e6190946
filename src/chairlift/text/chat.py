"""Chat messages to a prompt, by the model's own template.

Templates are Jinja programs that come with the weights; they run in a sandbox with the few functions that templates
of the Hugging Face format expect. A template that is missing, fails or refuses is the request's error and names
`messages`. The template writes the first token itself where the model wants one: encode the text it gives with
`add_special=False`, or that token stands there twice.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from chairlift.core.errors import InvalidRequest
from chairlift.text.tokenizer import Tokenizer

_OWN_NAMES = ("messages", "add_generation_prompt", "tools", "documents")
# Put behind the text to continue, with a space; where it shows up in the prompt, the prompt is cut.
_CUT_MARK = "\u2402chairlift-cut\u2403"


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it only groups."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
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
    if continue_final_message:
        chat[-1]["content"] += _CUT_MARK + " "
    variables = tokenizer.template_tokens | extra
    text = _run(tokenizer.chat_template, chat, add_generation_prompt, variables)
    return _cut(text) if continue_final_message else text


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy of the messages whose content is text."""
    if not messages:
        raise InvalidRequest("messages", "must not be empty")
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
    try:
        return _compiled(template).render(
            messages=chat, tools=None, documents=None, add_generation_prompt=add_generation_prompt, **variables
        )
    except jinja2.TemplateError as error:
        raise InvalidRequest("messages", f"the chat template refuses them: {error}") from error
    except RecursionError as error:
        raise InvalidRequest("messages", "the chat template does not end") from error
    except Exception as error:  # a template is a program of its own and can fail in any way
        raise InvalidRequest("messages", f"the chat template fails on them: {error}") from error


def _cut(text: str) -> str:
    before, mark, after = text.rpartition(_CUT_MARK)
    if not mark:
        raise InvalidRequest("continue_final_message", "the chat template does not show the final message")
    # A template that trimmed the space behind the mark would have trimmed the end of the text too.
    return before if after.startswith(" ") else before.rstrip()


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment.from_string(template)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML characters, which a prompt must not have.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
