"""Rules of a grammar for calls, by the notation of a family: what `notations` reads, held to the tools' schemas."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.rules.braced_values import braced_arguments
from chairlift.text.responses.rules.schemas import arguments_of, unlisted
from chairlift.text.responses.rules.tag_values import json_or_python, tag_value
from chairlift.text.responses.templates.template import BracedCall, JsonCall, NamedCall, PythonCall, TaggedCall
from chairlift.text.structured.lark import Rules, either, escaped, expression, json_value, literal

_B = r"\n? {0,4}"  # blanks inside a call
_LINE = r"\n?"
_LEAD = r"[ \t\r\n]{0,4}"  # as many as the reader takes before a bare call
_KEY = re.compile(r"[\w.-]+")
_CALL_ID = r'[ \n]?,[ \n]?"id"[ \n]?:[ \n]?"[A-Za-z0-9]{9}"'


class HeldTool(NamedTuple):
    """A tool with the schema that it is held to."""

    name: str
    schema: dict[str, Any]
    is_strict: bool = False  # what the notation cannot hold its arguments to is refused, and else left out


def json_calls(rules: Rules, notation: JsonCall, tools: Sequence[HeldTool], most: int | None, is_bare: bool) -> str:
    kind = rf'(?:"type"{_B}:{_B}"function"{_B},{_B})?' if notation.says_type else ""
    opening = rf"\{{{_B}{kind}{_B}\"name\"{_B}:"
    last = rules.rule(expression((f"(?:{_CALL_ID})?" if notation.says_id else "") + _B + r"\}"))
    each = []
    for tool in tools:
        head = rf'{_B}"{escaped(tool.name)}"{_B},{_B}"{escaped(notation.arguments)}"{_B}:{_B}'
        each.append(f"{rules.rule(expression(head))} {json_value(tool.schema)} {last}")
    begin = rules.lazy(_LEAD + opening) if is_bare else rules.rule(expression(_B + opening))
    call = rules.rule(f"{begin} {either(each)}")
    if not notation.is_list:
        return call
    first, last = expression(_B + r"\["), expression(_B + r"\]")
    return f"{first} {_listed(call, most)} {last}"


def _listed(call: str, most: int | None) -> str:
    return call if most == 1 else f"{call} ({expression(_B + ',')} {call})*"


def named_call(rules: Rules, notation: NamedCall, tools: Sequence[HeldTool]) -> str:
    call_id = f"({rules.text(notation.id_mark)} /[A-Za-z0-9]{{9}}/)?" if notation.id_mark else ""
    each = []
    for tool in tools:
        if call_id:
            head = f"{rules.text(notation.before + tool.name)} {call_id} {rules.text(notation.between)}"
        else:
            head = rules.text(notation.before + tool.name + notation.between)
        each.append(f"{head} {json_value(tool.schema)} {rules.text(notation.after)}")
    return rules.rule(either(each))


def tagged_call(rules: Rules, notation: TaggedCall, tools: Sequence[HeldTool]) -> str:
    each = []
    for tool in tools:
        close = escaped(notation.name.close) if notation.name.close.strip() else _LINE
        head = expression(_LINE + escaped(notation.name.open + tool.name) + close)
        listed = _arguments(tool)
        if listed is None:
            key = rf"\n?{escaped(notation.key.open)}[\w.-]+{escaped(notation.key.close)}"
            body = f"({rules.rule(expression(key + _opened(notation)))} {rules.until(notation.value.close)})*"
        else:
            body = " ".join(
                _tag(rules, notation, tool, name, schema) + ("" if must else "?") for name, schema, must in listed
            )
        each.append(f"{head} {body} {expression(_LINE + escaped(notation.close)) if notation.close else ''}")
    return rules.rule(either(each))


def _opened(notation: TaggedCall) -> str:
    return rf"\n?{escaped(notation.value.open)}" if notation.value.open else ""


def _tag(rules: Rules, notation: TaggedCall, tool: HeldTool, name: str, schema: dict[str, Any]) -> str:
    def refuse(keyword: str) -> None:
        if tool.is_strict:
            why = f"at /properties/{name}: a bare string cannot be held to {keyword}"
            raise InvalidRequest("tools", f"{tool.name}: {why}")

    head = rf"\n?{escaped(notation.key.open + _checked(name) + notation.key.close)}{_opened(notation)}"
    return rules.rule(f"{expression(head)} {tag_value(rules, schema, notation, refuse)}")


def python_calls(rules: Rules, notation: PythonCall, tools: Sequence[HeldTool], most: int | None, is_bare: bool) -> str:
    arguments = {tool.name: _python_arguments(rules, tool) for tool in tools}

    def begun(write: Callable[[str], str]) -> str:
        return rules.rule(either([f"{write(escaped(tool.name + '('))} {arguments[tool.name]}" for tool in tools]))

    later = begun(expression)
    if not notation.is_list:
        first = begun(lambda head: expression(r"\n?" + head))
        return first if most == 1 else f"{first} ({literal(chr(10))} {later})* "
    first = begun(lambda head: rules.lazy(_LEAD + r"\[" + head) if is_bare else expression(_B + r"\[" + head))
    return f'{first} "]"' if most == 1 else f'{first} (/, ?/ {later})* "]"'


def _python_arguments(rules: Rules, tool: HeldTool) -> str:
    listed = _arguments(tool)
    if listed is None:
        one = f"/[A-Za-z_][A-Za-z0-9_]*=/ {json_value({})}"
        return rules.rule(f'({one} (/, ?/ {one})*)? ")"')
    each = [(rules.rule(_python_argument(name, schema)), must) for name, schema, must in listed]
    return rules.in_order(each, "/, ?/", '")"')


def _python_argument(name: str, schema: dict[str, Any]) -> str:
    return f"{literal(_checked(name) + '=')} {json_or_python(schema)}"


def braced_call(rules: Rules, notation: BracedCall, tools: Sequence[HeldTool]) -> str:
    def arguments(tool: HeldTool) -> str:
        def refuse(keyword: str) -> None:
            if tool.is_strict:
                raise InvalidRequest(
                    "tools", f"{tool.name}: arguments in the model's format cannot be held to {keyword}"
                )

        return braced_arguments(rules, tool.schema, notation, refuse)

    return rules.rule(either([f"{literal(tool.name)} {arguments(tool)}" for tool in tools]))


def _arguments(tool: HeldTool) -> list[tuple[str, dict[str, Any], bool]] | None:
    if tool.is_strict and (keyword := unlisted(tool.schema)):
        raise InvalidRequest("tools", f"{tool.name}: arguments in the model's format cannot be held to {keyword}")
    return arguments_of(tool.schema)


def _checked(name: str) -> str:
    if not _KEY.fullmatch(name):
        raise InvalidRequest("tools", f"the model's format cannot write an argument named {name!r}")
    return name
