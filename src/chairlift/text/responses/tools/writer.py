"""Calls as a family's models write them: for the instruction that a model needs whose chat template knows no tools."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from chairlift.text.responses.templates.template import (
    BracedCall,
    Calls,
    Channels,
    JsonCall,
    NamedCall,
    Notation,
    PythonCall,
    ResponseTemplate,
    TaggedCall,
)

Arguments = Mapping[str, Any]
_BARE_KEY = re.compile(r"[\w.-]+")


def write_calls(template: ResponseTemplate, calls: Sequence[tuple[str, Arguments]]) -> str:
    """The template must be of a family that can call."""
    if template.channels:
        return "".join(_message(template.channels, name, arguments) for name, arguments in calls)
    assert template.calls is not None
    style = template.calls
    if isinstance(style.notation, JsonCall | PythonCall) and (
        style.notation.is_list or style.notation == PythonCall(False)
    ):
        return _closed(style, _together(style.notation, calls))
    each = [_closed(style, _one(style.notation, name, arguments)) for name, arguments in calls]
    if style.section:
        return style.section.open + "\n".join(each) + style.section.close
    return ("\n" if style.close else "").join(each)


def _closed(style: Calls, text: str) -> str:
    line = "\n" if style.close.startswith("</") and not isinstance(style.notation, NamedCall) else ""
    return f"{style.open}{line}{text}{line}{style.close}"


def _together(notation: Notation, calls: Sequence[tuple[str, Arguments]]) -> str:
    each = [_one(notation, name, arguments) for name, arguments in calls]
    return f"[{', '.join(each)}]" if getattr(notation, "is_list", False) else "\n".join(each)


def _one(notation: Notation, name: str, arguments: Arguments) -> str:
    if isinstance(notation, JsonCall):
        return _json({"name": name, notation.arguments: arguments})
    if isinstance(notation, NamedCall):
        return f"{notation.before}{name}{notation.between}{_json(arguments)}{notation.after}"
    if isinstance(notation, PythonCall):
        return f"{name}({', '.join(f'{key}={_literal(value)}' for key, value in arguments.items())})"
    if isinstance(notation, BracedCall):
        return name + braced(arguments, notation.quote)
    return _tagged(notation, name, arguments)


def braced(value: Any, quote: str) -> str:
    """A value in the notation of `BracedCall`."""
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, Mapping):
        members = sorted(value.items(), key=by_name)
        return f"{{{','.join(f'{braced_key(key, quote)}:{braced(each, quote)}' for key, each in members)}}}"
    if isinstance(value, Sequence):
        return f"[{','.join(braced(each, quote) for each in value)}]"
    return _json(value)


def by_name(member: tuple[str, Any]) -> str:
    """The order of the keys, which is that of the filter `dictsort` in chat templates."""
    return member[0].lower()


def braced_key(key: str, quote: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else f"{quote}{key}{quote}"


def _tagged(notation: TaggedCall, name: str, arguments: Arguments) -> str:
    lines = [f"{notation.name.open}{name}{notation.name.close.rstrip()}"]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else _json(value)
        if notation.value.open:
            lines.append(f"{notation.key.open}{key}{notation.key.close}")
            lines.append(f"{notation.value.open}{text}{notation.value.close}")
        else:
            lines.append(f"{notation.key.open}{key}{notation.key.close}\n{text}\n{notation.value.close}")
    return "\n".join([*lines, notation.close] if notation.close else lines)


def _message(channels: Channels, name: str, arguments: Arguments) -> str:
    head = f"{channels.channel}{channels.calls} {channels.recipient}{name} {channels.constrain}json"
    return f"{head}{channels.message}{_json(arguments)}{channels.last[0]}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _literal(value: Any) -> str:
    words = {"true": "True", "false": "False", "null": "None"}
    return words.get(_json(value), _json(value))
