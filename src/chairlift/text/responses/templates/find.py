"""Which family a model's answers belong to: by the chat template's own literals, or by name.

A model's own `response_template` (version 1, of tokenizer_config.json) as a template of ours.

Only what both the reader and the grammar can hold to is taken: literals around reasoning and content, and around calls
that are JSON objects with a name and arguments, or arguments behind a name. Anything else is `NotExpressible`, by name.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.text.responses.templates.families import BY_NAME, FAMILIES, GENERIC
from chairlift.text.responses.templates.template import (
    BracedCall,
    Calls,
    JsonCall,
    NamedCall,
    Notation,
    ResponseTemplate,
    Span,
)
from chairlift.text.tokenizer import Tokenizer

_REASONING = ("thinking", "reasoning_content", "reasoning")
_KNOWN = (*_REASONING, "content", "tool_calls")
_TRANSFORMS: tuple[tuple[Any, str], ...] = (
    ("{content}", "arguments"),
    ({"name": "{content.name}", "arguments": "{content.arguments}"}, "arguments"),
    ({"name": "{content.name}", "arguments": "{content.parameters}"}, "parameters"),
)
_NAME = re.compile(r"\(\?P<name>(?:\\w|\[[^\]]*\])\+\)")  # in an expression, where a call has its name
_BLANKS = re.compile(r"\A(?:\\s\*|\\n[?*])|(?:\\s\*|\\n[?*])\Z")  # of an expression, around a mark
_LITERAL = re.compile(r"(?:[^\\.+*?()|\[\]{}^$]|\\\W)+")  # an expression that says one text


class NotExpressible(Exception):
    """The text says which part."""


def declared_template(given: Mapping[str, Any]) -> ResponseTemplate:
    if given.get("version", 1) != 1:
        raise NotExpressible(f"version {given['version']!r}")
    fields = given.get("fields")
    if not isinstance(fields, Mapping):
        raise NotExpressible("it has no fields")
    unknown = next((name for name in fields if name not in _KNOWN), None)
    if unknown is not None:
        raise NotExpressible(f"field {unknown!r}")
    if "content" in fields and any(key in fields["content"] for key in ("open", "open_pattern")):
        raise NotExpressible("content between marks")
    reasoning = next((_span(name, fields[name]) for name in _REASONING if name in fields), None)
    calls = _calls(fields["tool_calls"]) if "tool_calls" in fields else None
    return ResponseTemplate("own", reasoning, calls)


def _span(name: str, field: Mapping[str, Any]) -> Span:
    """One literal each; of several closes, the first is written."""
    opened, closed = _mark(field, "open"), _mark(field, "close")
    if not opened or not closed:
        raise NotExpressible(f"{name}: its marks are not one literal each")
    return Span(opened, closed)


def _mark(field: Mapping[str, Any], name: str) -> str:
    """Empty where it is not one literal."""
    if f"{name}_pattern" in field:
        return _said(_BLANKS.sub("", str(field[f"{name}_pattern"])))
    given = field.get(name)
    text = given[0] if isinstance(given, list) and len(given) == 1 else given
    return text.strip("\n") if isinstance(text, str) else ""


def _said(pattern: str) -> str:
    return re.sub(r"\\(\W)", r"\1", pattern) if _LITERAL.fullmatch(pattern) else ""


def _calls(field: Mapping[str, Any]) -> Calls:
    if field.get("content") != "json":
        raise NotExpressible("tool_calls: not JSON")
    if "open_pattern" in field and not _mark(field, "open"):
        return _calls_by_name(field)
    if field.get("content_args"):
        raise NotExpressible("tool_calls: not plain JSON")
    span = _span("tool_calls", field)
    is_list = bool(field.get("transform_each"))
    key = _arguments_key(field.get("transform"))
    return Calls(JsonCall(key, is_list), span.open, span.close, can_repeat=bool(field.get("repeats")) or is_list)


def _calls_by_name(field: Mapping[str, Any]) -> Calls:
    """Whose name stands in what opens them: `<call>NAME{...}</call>`."""
    around = _NAME.split(str(field["open_pattern"]))
    opened, closed = _said(around[0]), _mark(field, "close")
    if len(around) != 2 or not opened or not closed:
        raise NotExpressible("tool_calls: its marks are not literals around a name")
    if _transformed(field.get("transform")) != {"name": "{name}", "arguments": "{content}"}:
        raise NotExpressible("tool_calls: its transform")
    notation = _behind_name(around[1], field.get("content_args"))
    return Calls(notation, opened, closed, can_repeat=bool(field.get("repeats")))


def _behind_name(between: str, dialect: Any) -> Notation:
    if not dialect and (not between or _said(between)):
        return NamedCall(_said(between))
    quotes = dialect.get("string_delims") if isinstance(dialect, Mapping) else None
    match quotes:
        case [[str(opened), str(closed)]] if opened == closed and dialect.get("unquoted_keys") and not between:
            return BracedCall(opened)
    raise NotExpressible("tool_calls: its kind of JSON")


def _transformed(transform: Any) -> Any:
    return transform.get("function", transform) if isinstance(transform, Mapping) else transform


def _arguments_key(transform: Any) -> str:
    if transform is None:
        return "arguments"
    function = _transformed(transform)
    for known, key in _TRANSFORMS:
        each = {k: v.replace("{content.", "{") for k, v in known.items()} if isinstance(known, dict) else known
        if function in (known, each):
            return key
    raise NotExpressible("tool_calls: its transform")


_log = logging.getLogger(__name__)


def find_template(
    chat_template: str | None, *, name: str | None = None, declared: dict[str, Any] | None = None
) -> ResponseTemplate | None:
    """`name`: of a family, which then counts alone. `declared`: the model's own `response_template`. None: the model
    has no chat template, so it writes no turns."""
    if name is not None:
        return named_template(name)
    if chat_template is None:
        return None
    why: NotExpressible | None = None
    if declared is not None:
        try:
            return declared_template(declared)
        except NotExpressible as error:
            why = error
    found = next((family.template for family in FAMILIES if family.fits(chat_template)), GENERIC)
    if why is not None:
        level = logging.WARNING if found is GENERIC else logging.INFO
        _log.log(level, "the model's own response_template is not used, but the format %s: %s", found.name, why)
    return found


def named_template(name: str) -> ResponseTemplate:
    if name not in BY_NAME:
        known = ", ".join(sorted(BY_NAME))
        raise InvalidConfig(
            f"{name}: no known format of tool calls (--tool-format, --tool-call-parser); leave it out, and the chat "
            f"template tells, or give one of {known}"
        )
    return BY_NAME[name]


def template_of(tokenizer: Tokenizer, name: str | None = None) -> ResponseTemplate | None:
    """Of a loaded model; `name`: of a family, which then counts alone."""
    return find_template(tokenizer.chat_template, name=name, declared=tokenizer.response_template)


def special_texts(tokenizer: Tokenizer) -> dict[str, int]:
    """The special tokens by their texts, as reader and grammar want them."""
    return {tokenizer.piece(token): token for token in sorted(tokenizer.special_ids)}


def begins_in_reasoning(template: ResponseTemplate, prompt_end: str) -> bool:
    """Whether a prompt, given by its last characters with special tokens shown, leaves reasoning open."""
    return template.reasoning is not None and prompt_end.rstrip().endswith(template.reasoning.open)
