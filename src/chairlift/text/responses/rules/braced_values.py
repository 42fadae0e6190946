"""Rules for arguments in the notation of `BracedCall`: what `braced` reads, held to a schema at every depth.

Always: what is allowed reads as a value of the schema, but for keywords that are refused or left out. Keys come in the
order of their names, as chat templates show them. Objects hold the properties that they name, and any where they name
none.
"""

import json
from collections.abc import Mapping
from typing import Any

from chairlift.text.responses.reading.values import NOTES, branches, kinds_of
from chairlift.text.responses.rules.tag_values import Refuse, json_or_python, text_pattern
from chairlift.text.responses.templates.template import BracedCall
from chairlift.text.responses.tools.writer import braced, braced_key, by_name
from chairlift.text.structured.lark import ANY_TEXT, Rules, either, escaped, expression

_TEXTS = frozenset(("minLength", "maxLength", "pattern", "format"))
_OBJECTS = frozenset(("properties", "required", "additionalProperties"))
_ARRAYS = frozenset(("items", "minItems", "maxItems"))
_NUMBERS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_HELD = NOTES | {"type"} | _TEXTS | _OBJECTS | _ARRAYS | _NUMBERS
_OF_STRINGS_AND_LISTS = ("string", "object", "array")


def braced_arguments(rules: Rules, schema: Mapping[str, Any], notation: BracedCall, refuse: Refuse) -> str:
    """`refuse` may return, and then the keyword is left out."""
    return _Values(rules, schema, notation.quote, refuse).arguments()


class _Values:
    def __init__(self, rules: Rules, root: Mapping[str, Any], quote: str, refuse: Refuse) -> None:
        self._rules, self._root, self._quote, self._refuse = rules, root, quote, refuse

    def arguments(self) -> str:
        every = [each for each in branches(self._root, self._root) if "object" in kinds_of(each)]
        return either([self._object(self._checked(each)) for each in every or [{}]])

    def _value(self, schema: Any) -> str:
        key = json.dumps(["braced", id(self._root), schema])  # references and strictness are the tool's own
        return self._rules.shared(key, lambda: either([self._branch(each) for each in branches(schema, self._root)]))

    def _branch(self, branch: Mapping[str, Any]) -> str:
        if "enum" in branch or "const" in branch:
            return self._members(branch)
        branch = self._checked(branch)
        kinds = kinds_of(branch)
        plain = [kind for kind in kinds if kind not in _OF_STRINGS_AND_LISTS]
        made = [json_or_python({**{k: branch[k] for k in _NUMBERS & branch.keys()}, "type": plain})] if plain else []
        made += [self._text(branch)] if "string" in kinds else []
        made += [self._object(branch)] if "object" in kinds else []
        made += [self._array(branch)] if "array" in kinds else []
        return either(made)

    def _checked(self, branch: Mapping[str, Any]) -> Mapping[str, Any]:
        if beside := branch.keys() - _HELD:
            self._refuse(min(beside))
        return branch

    def _members(self, branch: Mapping[str, Any]) -> str:
        name = "enum" if "enum" in branch else "const"
        if beside := branch.keys() - NOTES - {"type", name}:
            self._refuse(min(beside))
        wanted = kinds_of({"type": branch["type"]} if "type" in branch else {})
        members = branch["enum"] if name == "enum" else [branch["const"]]
        kinds = [set(kinds_of({"const": each})) | ({"number"} if type(each) is int else set()) for each in members]
        found = [each for each, kind in zip(members, kinds, strict=True) if kind & set(wanted)]
        quote = json.dumps(self._quote, ensure_ascii=False)[1:-1]
        told = [each for each in found if quote not in json.dumps(each, ensure_ascii=False)]
        if not told:
            self._refuse(name)
            return self._text({})
        return either([self._rules.text(braced(each, self._quote)) for each in told])

    def _text(self, branch: Mapping[str, Any]) -> str:
        pattern, quote = text_pattern(branch, self._refuse), self._quote
        never = expression(ANY_TEXT + escaped(quote) + ANY_TEXT)
        if self._rules.begins_special(quote):
            return f"{self._rules.text(quote)} {self._rules.terminal(pattern)} {self._rules.text(quote)}"
        rest = self._rules.rule(f"(({pattern}) & ~{never}) {expression(escaped(quote))}", "lazy")
        return f"{self._rules.text(quote)} {rest}"

    def _object(self, branch: Mapping[str, Any]) -> str:
        properties, more = branch.get("properties") or {}, branch.get("additionalProperties", True)
        required = branch.get("required") or ()
        listed = {**dict.fromkeys(required, more), **properties}
        if listed:
            each = [
                (self._member(name, schema), name in required) for name, schema in sorted(listed.items(), key=by_name)
            ]
            return f'"{{" {self._rules.in_order(each, chr(34) + "," + chr(34), chr(34) + "}" + chr(34))}'
        if more is False:
            return '"{" "}"'
        one = f"/[\\w.-]+:/ {self._value(more if isinstance(more, dict) else {})}"
        return f'"{{" ({one} ("," {one})*)? "}}"'

    def _member(self, name: str, schema: Any) -> str:
        key = self._rules.text(braced_key(name, self._quote) + ":")
        return self._rules.rule(f"{key} {self._value(schema if isinstance(schema, dict) else {})}")

    def _array(self, branch: Mapping[str, Any]) -> str:
        items, least, most = branch.get("items", True), int(branch.get("minItems", 0)), branch.get("maxItems")
        if most is not None and most < least:
            self._refuse("maxItems")
            most = None
        if items is False or most == 0:
            return '"[" "]"'
        one = self._value(items if isinstance(items, dict) else {})
        more = f'("," {one}){{{max(0, least - 1)},{"" if most is None else int(most) - 1}}}'
        return f'"[" {one} {more} "]"' if least else f'"[" ({one} {more})? "]"'
