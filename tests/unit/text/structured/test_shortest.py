"""The shortest text of a shape, and the fewest tokens that spell it."""

from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.shortest import Spellings, shortest_text
from unit.text.responses.grammars import tokenizer

_NODE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}

_LIST = {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (True, "0"),
        ({"type": "null"}, "null"),
        ({"type": ["string", "integer"]}, "0"),
        ({"type": "string"}, '""'),
        ({"type": "string", "minLength": 3}, '"aaa"'),
        ({"type": "string", "pattern": "^x-[0-9]{2}$"}, '"x-00"'),
        ({"type": "string", "format": "date"}, '"2000-01-01"'),
        ({"type": "integer", "minimum": 10, "maximum": 20}, "10"),
        ({"type": "integer", "exclusiveMaximum": -1}, "-2"),
        ({"const": {"a": [1, "ü"]}}, '{"a":[1,"ü"]}'),
        ({"enum": ["long", "a"]}, '"a"'),
        ({"type": "array"}, "[]"),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, "[true,true]"),
        ({"type": "array", "prefixItems": [{"const": 7}], "items": {"type": "null"}, "minItems": 2}, "[7,null]"),
        ({"type": "object", "properties": {"b": {"type": "integer"}, "a": True}, "required": ["a"]}, '{"a":0}'),
        ({"type": "object", "required": ["z"]}, '{"z":0}'),
        ({"anyOf": [{"const": "long"}, {"type": "null"}]}, "null"),
        ({"allOf": [{"type": "object", "properties": {"a": {"const": 5}}}, {"required": ["a"]}]}, '{"a":5}'),
        ({"$ref": "#/$defs/node", "$defs": {"node": {**_NODE, "required": ["next"]}}}, '{"next":null}'),
        ({"$ref": "#/$defs/list", "required": ["next"], "$defs": {"list": _LIST}}, '{"next":{}}'),
    ],
)
def test_the_shortest_json_of_a_schema(schema: Any, text: str) -> None:
    assert shortest_text(Structured.json_schema(schema)) == text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a*", ""),
        ("(ab|c)+[^a]", "c0"),
        (r"\d{3}-\w", "000-a"),
        ("[x-z]{2}", "xx"),
        ("a(?=b)", None),
        ("(", None),
        ("a?" * 10_000, None),
    ],
)
def test_the_shortest_match_of_an_expression(pattern: str, text: str | None) -> None:
    assert shortest_text(Structured.regex(pattern)) == text


def test_the_shortest_choice() -> None:
    assert shortest_text(Structured.choice(["maybe", "no"])) == "no"


def test_of_several_texts_the_one_of_least_cost_counts() -> None:
    def cost(text: str) -> int:
        return 1 if "international" in text else len(text)

    assert shortest_text(Structured.choice(["no", "international"]), cost) == "international"
    assert shortest_text(Structured.regex("(abc|international)!"), cost) == "international!"
    assert shortest_text(Structured.json_schema({"enum": ["no", "international"]}), cost) == '"international"'


def _doubling(depth: int) -> dict[str, Any]:
    arrays = {f"d{i}": {"type": "array", "minItems": 2, "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": arrays | {f"d{depth}": {"type": "integer"}}}


@pytest.mark.parametrize(
    "structured",
    [
        Structured.json_schema(_doubling(40)),
        Structured.json_schema({"type": "array", "minItems": 2000, "items": {"type": "string", "minLength": 60_000}}),
        Structured.json_schema({"type": "string", "minLength": 60_000}),
        Structured.regex("((a{4000}){4000}){4000}"),
    ],
    ids=["doubling", "array", "string", "regex"],
)
def test_what_would_be_very_long_is_not_written_out(structured: Structured) -> None:
    assert shortest_text(structured) is None


def test_a_long_chain_of_references_is_not_followed_to_its_end() -> None:
    chain = {f"d{i}": {"type": "array", "minItems": 1, "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(900)}
    schema = {"$ref": "#/$defs/d0", "$defs": chain | {"d900": {"type": "null"}}}
    assert shortest_text(Structured.json_schema(schema)) is None


def test_what_cannot_be_told_is_none() -> None:
    assert shortest_text(Structured.grammar('start: "a"')) is None
    assert shortest_text(Structured.json_schema({"type": "object", "minProperties": 2})) is None
    assert shortest_text(Structured.json_schema({"type": "array", "items": [{"type": "null"}], "minItems": 1})) is None
    assert shortest_text(Structured.json_schema({"type": "string", "format": "unheard-of"})) is None


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"$ref": "#"}, "at /: "),
        ({"type": "object", "properties": {"a/b": {"$ref": "#"}}, "required": ["a/b"]}, "at /properties/a~1b: "),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "at /items: "),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "at /: minItems"),
        ({"$ref": "#/$defs/a", "$defs": {"a": _LIST | {"required": ["next"]}, "list": {"$ref": "#/$defs/a"}}},
         r"at /\$defs/list: "),
    ],
)  # fmt: skip
def test_a_schema_without_a_finite_answer_is_refused_with_its_place(schema: Any, place: str) -> None:
    with pytest.raises(InvalidRequest, match=place):
        shortest_text(Structured.json_schema(schema))


def test_the_fewest_tokens_that_spell_a_text() -> None:
    assert Spellings(tokenizer()).num_tokens_of("") == 0
    assert Spellings(tokenizer()).num_tokens_of("hello") == 1
    text = '{"name":"hello world"}'
    found = Spellings(tokenizer()).num_tokens_of(text)
    assert found is not None
    assert 3 <= found <= len(tokenizer().encode(text, add_special=False))
