"""Structural tags as grammars."""

from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.grammar import grammar_of
from unit.text.responses.grammars import accepts, begins

_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
OLD = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<function=f>", "schema": _SCHEMA, "end": "</function>"},
        {"begin": "<function=g>", "schema": {"type": "null"}, "end": "</function>"},
    ],
    "triggers": ["<function="],
}
_NUMBER = {"type": "regex", "pattern": "[0-9]+"}
_TAG = {"type": "tag", "begin": "<n>", "content": _NUMBER, "end": "</n>"}
_WORD = {"type": "tag", "begin": "<w>", "content": {"type": "any_text"}, "end": "</w>"}
_TRIGGERED = {"type": "triggered_tags", "triggers": ["<"], "tags": [_TAG, _WORD]}
_INSIDE = _TAG | {"content": _TRIGGERED | {"triggers": ["<n", "<w"]}, "begin": "<o>", "end": "</o>"}
_MARKED = {"type": "sequence", "elements": [{"type": "any_text"}, {"type": "const_string", "value": "!"}]}


def shape(tags: Any) -> Structured:
    return Structured.structural_tag(tags)


def tree(form: Any) -> Structured:
    return shape({"type": "structural_tag", "format": form})


@pytest.mark.parametrize(
    ("text", "is_fine"),
    [
        ("no tags at all", True),
        ('a <function=f>{"a": 1}</function> b <function=g>null</function>', True),
        ("a < b", True),
        ("<function=h>", False),
        ('<function=f>{"b"', False),
        ("<function=g>null</f", True),
    ],
)
def test_the_older_form(text: str, is_fine: bool) -> None:
    assert begins(shape(OLD), text) == is_fine


@pytest.mark.parametrize(
    ("form", "fine", "wrong"),
    [
        ({"type": "const_string", "value": 'a"b'}, 'a"b', "ab"),
        ({"type": "json_schema", "json_schema": _SCHEMA}, '{"a": 1}', '{"b": 1}'),
        (_NUMBER, "12", "1a"),
        ({"type": "grammar", "grammar": 'start: "x" | "y"'}, "y", "z"),
        ({"type": "grammar", "grammar": 'root ::= "x" | "y"'}, "y", "z"),
        ({"type": "grammar", "grammar": 'start: "a ::= b"'}, "a ::= b", "a"),
        ({"type": "any_text"}, "what <ever>", None),
        ({"type": "sequence", "elements": [_NUMBER, {"type": "const_string", "value": "!"}]}, "1!", "1?"),
        (_MARKED, "a b!", "a!b"),
        ({"type": "or", "elements": [_NUMBER, {"type": "const_string", "value": "no"}]}, "no", "yes"),
        (_TAG, "<n>12</n>", "<n>x</n>"),
        (_WORD, "<w>any <n> at all</w>", "<w>a</w>b"),
        (_TRIGGERED, "a <n>1</n> b <w>c</w>", "a <n>x"),
        (_TRIGGERED | {"at_least_one": True}, "<n>1</n> b", "a"),
        (_TRIGGERED | {"at_least_one": True, "stop_after_first": True}, "<n>1</n>", "<n>1</n> b"),
        (_TRIGGERED | {"stop_after_first": True}, "a <n>1</n>", "<n>1</n> b"),
        ({"type": "tags_with_separator", "tags": [_TAG], "separator": ","}, "<n>1</n>,<n>2</n>", "<n>1</n>;"),
        ({"type": "tags_with_separator", "tags": [_TAG], "separator": ",", "at_least_one": True}, "<n>1</n>", ""),
        (_INSIDE, "<o>a <n>1</n> < b</o>", "<o>a <n>x"),
    ],
)  # fmt: skip
def test_each_format(form: Any, fine: str, wrong: str | None) -> None:
    assert accepts(tree(form), fine)
    assert wrong is None or not accepts(tree(form), wrong)


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ([], "at /: must be an object"),
        ({"structures": []}, "at /structures: must be a list that is not empty"),
        (OLD | {"triggers": ["<tool"]}, "at /tags/0/begin: must begin with one of the triggers"),
        ({"format": {"type": "qwen_xml"}}, "at /format/type: must be one of const_string, "),
        ({"format": {"type": "or", "elements": [_NUMBER, {"type": "tag"}]}}, "at /format/elements/1: must be .* begin"),
        ({"format": {"type": "grammar", "grammar": 'root ::= "a" [0-9'}}, "at /format/grammar: not a grammar in GBNF"),
        ({"format": {"type": "any_text", "excludes": ["x"]}}, "at /format/excludes: is not supported"),
        ({"format": {"type": "sequence", "elements": [{"type": "any_text"}, _TAG]}}, "at /format/elements/0: any_text"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_its_place(tags: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        grammar_of(shape(tags))
