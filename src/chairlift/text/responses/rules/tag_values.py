r"""Rules for a value between tags, where a string stands bare and anything else in JSON: what `values` reads.

Always: what is allowed reads as a value of the schema, but for keywords that a bare string cannot be held to, which
are refused or left out. Free text and JSON never begin alike, because the library reads on as long as either may:

    "\n"? ((texts and words, none that begins as JSON does) "\n"? close | JSON "\n"? close)

Line breaks only where they belong to the tags.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from chairlift.text.responses.reading.values import NOTES, branches, json_of, kinds_of, types_of
from chairlift.text.responses.templates.template import TaggedCall
from chairlift.text.structured.grammar import regex_fault
from chairlift.text.structured.lark import ANY_TEXT, Rules, either, escaped, expression, json_value

Refuse = Callable[[str], None]  # called with a keyword that cannot be held to
_BARE = NOTES | {"type"}
_LENGTHS = frozenset(("minLength", "maxLength"))
_OF_NUMBERS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_COMBINED = frozenset(("$ref", "allOf", "if", "then", "else", "not"))
_INTEGER = "-?(?:0|[1-9][0-9]{0,17})"
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_WORDS = {"integer": _INTEGER, "number": _NUMBER, "boolean": "true|false|True|False", "null": "null|None"}
_FIRSTS = {"integer": "-0-9", "number": "-0-9", "object": r"\{", "array": r"\["}
_BLANK = r"[\s\x1c-\x1f]*"
# What the reader takes for a value of the kind, at least.
_LOOKS = {"integer": _NUMBER, "number": _NUMBER, "boolean": "(?i:true|false)", "object": r"\{(?s:.*)",
          "array": r"\[(?s:.*)"}  # fmt: skip


def tag_value(rules: Rules, schema: Mapping[str, Any], notation: TaggedCall, refuse: Refuse) -> str:
    """A value and the close behind it. `refuse` may return, and then the keyword is left out."""
    types = types_of(schema, schema)
    line, close = r"\n?" if notation.has_lines else "", notation.value.close
    begin, end = expression(line) if line else "", rules.rule(expression(line + escaped(close)))
    if "string" not in types:
        return f"{begin} {json_or_python(schema)} {end}"
    every = branches(schema, schema)
    if all(_BARE.issuperset(each) for each in every):
        return rules.lazy(line + ANY_TEXT + line + escaped(close))
    parts = _Parts(types, close, refuse)
    for each in every:
        parts.add(each, {name: schema[name] for name in ("$defs", "definitions") if name in schema})
    texts = rules.rule(f"{begin} ({parts.texts()}) {expression(line + escaped(close))}", "lazy")
    return either([texts, *(f"{begin} {value} {end}" for value in parts.values)])


def json_or_python(schema: Mapping[str, Any]) -> str:
    """A value in JSON, or one of the words that Python has for it."""
    free = {kind for each in branches(schema, schema) if _BARE.issuperset(each) for kind in kinds_of(each)}
    words = ['"True"', '"False"'] if "boolean" in free else []
    words += ['"None"'] if "null" in free else []
    return either([json_value(schema), *words])


class _Parts:
    """The alternatives of a value, gathered over the branches of its schema."""

    def __init__(self, types: tuple[str, ...], close: str, refuse: Refuse) -> None:
        self._types, self._close, self._refuse = types, close, refuse
        self._patterns: list[str] = []  # of free text
        self._words: list[str] = []  # expressions
        self._free: set[str] = set()  # kinds of which every value is allowed
        self._firsts: set[str] = set()  # what JSON begins with
        self.values: list[str] = []

    def add(self, branch: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
        if "enum" in branch or "const" in branch:
            self._add_members(branch)
            return
        kinds = kinds_of(branch)
        if "string" in kinds:
            self._patterns.append(text_pattern(branch, self._refuse))
        plain = {"boolean", "null"} | (set() if _OF_NUMBERS & branch.keys() else {"integer", "number"})
        plain = set() if _COMBINED & branch.keys() else plain
        in_json = [kind for kind in kinds if kind not in ("string", *plain)]
        self._free |= {kind for kind in kinds if kind not in in_json}
        self._words += [_WORDS[kind] for kind in kinds if kind in _WORDS and kind not in in_json]
        if in_json:
            self._firsts |= {_FIRSTS.get(kind, "tfn") for kind in in_json}
            self.values.append(json_value({**shared, **branch, "type": in_json}))

    def texts(self) -> str:
        """Of the part that is no JSON, as an expression of the library."""
        looks = [_LOOKS[kind] for kind in _LOOKS if kind in self._types and not self._is_free(kind)]
        seems = f" & ~{expression(f'{_BLANK}(?:{chr(124).join(looks)}){_BLANK}')}" if looks else ""
        parts = [f"({pattern}{seems})" for pattern in dict.fromkeys(self._patterns)]
        parts += [expression(word) for word in dict.fromkeys(self._words)]
        never = [r"\n(?s:.*)", r"(?s:.*)\n", rf"(?s:.*){escaped(self._close)}(?s:.*)"]
        if self._firsts:
            never.append(rf"{_BLANK}[{''.join(sorted(self._firsts))}](?s:.*)")
        return f"({' | '.join(parts)}) & ~{expression('|'.join(never))}"

    def _is_free(self, kind: str) -> bool:
        return kind in self._free or (kind == "integer" and "number" in self._free)

    def _add_members(self, branch: Mapping[str, Any]) -> None:
        if beside := branch.keys() & (_COMBINED | _LENGTHS | _OF_NUMBERS | {"pattern", "format"}):
            self._refuse(min(beside))
        members = branch["enum"] if "enum" in branch else [branch["const"]]
        wanted = kinds_of({"type": branch["type"]} if "type" in branch else {})
        found = [text for text in (_written(each, self._types, wanted) for each in members) if self._can_stand(text)]
        if not found:
            self._refuse("enum" if "enum" in branch else "const")
            self._patterns.append(expression(ANY_TEXT))
        self._words += [escaped(text) for text in found if text is not None]

    def _can_stand(self, text: str | None) -> bool:
        return text is not None and self._close not in text and text.strip("\n") == text


def text_pattern(branch: Mapping[str, Any], refuse: Refuse) -> str:
    """Of a bare string: its length, and a pattern that is anchored."""
    if beside := branch.keys() & _COMBINED:
        refuse(min(beside))
    inside = _unanchored(branch.get("pattern"))
    if "format" in branch or ("pattern" in branch and inside is None):
        refuse("format" if "format" in branch else "pattern")
    least, most = branch.get("minLength", 0), branch.get("maxLength")
    length = expression(f"(?s:.{{{int(least)},{'' if most is None else int(most)}}})")
    return length if inside is None else f"{expression(inside)} & {length}"


def _written(member: Any, types: tuple[str, ...], wanted: tuple[str, ...]) -> str | None:
    """A value as it stands between the tags; None where the reader would take that for another, or it is not wanted."""
    [kind] = kinds_of({"const": member})
    if kind not in wanted and not (kind == "integer" and "number" in wanted):
        return None
    said = json.dumps(member)
    text = member if isinstance(member, str) else said
    is_read = types == ("string",) or json.dumps(json.loads(json_of(text, types))) == said
    return text if is_read else None


def _unanchored(pattern: Any) -> str | None:
    """What stands between `^` and `$`; None where they do not hold for the whole of it."""
    if not isinstance(pattern, str) or not re.fullmatch(r"\^.*(?<!\\)(?:\\\\)*\$", pattern, re.DOTALL):
        return None
    inside = pattern[1:-1]
    return None if _splits(inside) or regex_fault(inside) else inside


def _splits(pattern: str) -> bool:
    """Whether a `|` stands outside of all groups."""
    depth = 0
    for sign in re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\\?\Z)|[()|]", pattern, re.DOTALL):
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            return True
    return False
