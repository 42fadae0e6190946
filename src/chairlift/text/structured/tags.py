"""Structural tags: free text in which certain marks open parts of a given shape, as OpenAI's and vLLM's
`response_format` of type "structural_tag" says them, in the older form (structures, triggers) or as a tree of formats.

Always: what a grammar cannot express is refused, with its JSON pointer. Marks are text: special tokens are not known.
"""

from collections.abc import Callable, Mapping
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.text.structured.lark import Rules, either, expression, given, json_value, lark_of, literal

_Format = Callable[[Rules, Mapping[str, Any], str, str], str]


def tags_grammar(given: Any) -> str:
    rules = Rules({})
    if not isinstance(given, Mapping):
        raise _wrong("", "must be an object")
    try:
        if "format" in given:
            return rules.grammar(_write(rules, given["format"], "/format", ""))
        return rules.grammar(_triggered(rules, _of_structures(given), "", ""))
    except RecursionError as error:
        raise _wrong("/format", "too many formats stand one inside of another") from error


def _of_structures(given: Mapping[str, Any]) -> dict[str, Any]:
    """The older form as the newer one."""
    tags = []
    for i, each in enumerate(_list(given, "structures", "")):
        place = f"/structures/{i}"
        schema = _get(each, "schema", place)
        content = {"type": "json_schema", "json_schema": schema}
        tags.append({"begin": _text(each, "begin", place), "content": content, "end": _text(each, "end", place)})
    return {"type": "triggered_tags", "triggers": _list(given, "triggers", ""), "tags": tags}


def _write(rules: Rules, node: Any, place: str, end: str) -> str:
    """A format and, behind it, the mark that ends the part that it stands in."""
    kind = _get(node, "type", place)
    if not isinstance(kind, str) or kind not in _FORMATS:
        raise _wrong(f"{place}/type", f"must be one of {', '.join(_FORMATS)}, got {kind!r}")
    return _FORMATS[kind](rules, node, place, end)


def _ended(body: str, end: str) -> str:
    return f"{body} {literal(end)}" if end else body


def _const(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    return _ended(literal(_text(node, "value", place)), end)


def _schema(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    schema = _get(node, "json_schema", place)
    if not isinstance(schema, bool | Mapping):
        raise _wrong(f"{place}/json_schema", "must be a JSON schema")
    return _ended(json_value(schema), end)


def _regex(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    return _ended(expression(_text(node, "pattern", place)), end)


def _grammar(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    try:
        source = lark_of(_text(node, "grammar", place))
    except InvalidRequest as error:
        raise _wrong(f"{place}/grammar", error.message) from error
    return _ended(given(source), end)


def _any_text(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    if node.get("excludes"):
        raise _wrong(f"{place}/excludes", "is not supported")
    return rules.until(end) if end else rules.free()


def _sequence(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    elements = _list(node, "elements", place)
    parts, at = [], 0
    while at < len(elements):
        each, here = elements[at], f"{place}/elements/{at}"
        is_last = at == len(elements) - 1
        if _get(each, "type", here) == "any_text" and not is_last:
            following = elements[at + 1]
            if not isinstance(following, Mapping) or following.get("type") != "const_string":
                raise _wrong(here, "any_text must stand last, or before a const_string")
            mark = _text(following, "value", f"{place}/elements/{at + 1}")
            parts.append(_any_text(rules, each, here, mark))
            at += 2
            continue
        parts.append(_write(rules, each, here, end if is_last else ""))
        at += 1
    if end and _get(elements[-1], "type", place) == "const_string" and at > 1 and _is_any(elements[-2]):
        parts.append(literal(end))
    return rules.rule(" ".join(parts))


def _is_any(node: Any) -> bool:
    return isinstance(node, Mapping) and node.get("type") == "any_text"


def _or(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    elements = enumerate(_list(node, "elements", place))
    return rules.rule(either([_write(rules, each, f"{place}/elements/{i}", end) for i, each in elements]))


def _tag(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    return _ended(_tag_from(rules, node, place, _text(node, "begin", place)), end)


def _tag_from(rules: Rules, node: Mapping[str, Any], place: str, begin: str) -> str:
    """A tag of whose beginning this much is still to be written."""
    content = _write(rules, _get(node, "content", place), f"{place}/content", _text(node, "end", place))
    return rules.rule(f"{literal(begin) if begin else ''} {content}")


def _triggered(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    if node.get("excludes"):
        raise _wrong(f"{place}/excludes", "is not supported")
    triggers = _list(node, "triggers", place)
    tags = _list(node, "tags", place)
    opened: dict[str, list[str]] = {}  # what may follow each trigger
    for i, tag in enumerate(tags):
        here = f"{place}/tags/{i}"
        begin = _text(tag, "begin", here)
        trigger = next((each for each in triggers if isinstance(each, str) and each and begin.startswith(each)), None)
        if trigger is None:
            raise _wrong(f"{here}/begin", "must begin with one of the triggers")
        opened.setdefault(trigger, []).append(_tag_from(rules, tag, here, begin[len(trigger) :]))
    late = either([f"{rules.until(trigger)} {either(rest)}" for trigger, rest in opened.items()])
    if not node.get("at_least_one"):
        return _text_with(rules, late, end, is_once=bool(node.get("stop_after_first")))
    first = either([_tag_from(rules, tag, f"{place}/tags/{i}", tag["begin"]) for i, tag in enumerate(tags)])
    if node.get("stop_after_first"):
        return _ended(rules.rule(first), end)
    return rules.rule(f"{first} {_text_with(rules, late, end, is_once=False)}")


def _text_with(rules: Rules, tag: str, end: str, is_once: bool) -> str:
    text = rules.until(end) if end else rules.free()
    return rules.rule(f"{_ended(tag, end)} | {text}" if is_once else f"({tag})* {text}")


def _separated(rules: Rules, node: Mapping[str, Any], place: str, end: str) -> str:
    tags = enumerate(_list(node, "tags", place))
    tag = rules.rule(either([_write_tag(rules, each, f"{place}/tags/{i}") for i, each in tags]))
    separator = _text(node, "separator", place)
    more = "" if node.get("stop_after_first") else f"({literal(separator) if separator else ''} {tag})*"
    body = f"{tag} {more}" if node.get("at_least_one") else f"({tag} {more})?"
    return rules.rule(_ended(body, end))


def _write_tag(rules: Rules, node: Any, place: str) -> str:
    return _tag_from(rules, node, place, _text(node, "begin", place))


_FORMATS: dict[str, _Format] = {
    "const_string": _const, "json_schema": _schema, "regex": _regex, "grammar": _grammar, "any_text": _any_text,
    "sequence": _sequence, "or": _or, "tag": _tag, "triggered_tags": _triggered, "tags_with_separator": _separated,
}  # fmt: skip


def _get(node: Any, name: str, place: str) -> Any:
    if not isinstance(node, Mapping) or name not in node:
        raise _wrong(place, f"must be an object with {name}")
    return node[name]


def _text(node: Any, name: str, place: str) -> str:
    value = _get(node, name, place)
    if not isinstance(value, str):
        raise _wrong(f"{place}/{name}", "must be a text")
    return value


def _list(node: Any, name: str, place: str) -> list[Any]:
    value = _get(node, name, place)
    if not isinstance(value, list) or not value:
        raise _wrong(f"{place}/{name}", "must be a list that is not empty")
    return value


def _wrong(place: str, message: str) -> InvalidRequest:
    return InvalidRequest("structured_outputs", f"at {place or '/'}: {message}")
