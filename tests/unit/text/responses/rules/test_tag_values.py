"""Values between tags: what the grammar allows reads as a value of the schema."""

import json
import random
from itertools import islice
from typing import Any

import jsonschema_rs
import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.responses.reading.events import CallArguments
from chairlift.text.responses.reading.reader import ResponseReader
from chairlift.text.responses.reading.values import json_of, types_of
from chairlift.text.responses.rules.response import response_grammar
from chairlift.text.responses.templates.families import BY_NAME
from chairlift.text.responses.tools.tool import Tool
from unit.text.responses.grammars import accepts, walk

DEFS = {"C": {"enum": ["red"]}, "S": {"type": "string", "maxLength": 2}}


def tool_of(value: Any, is_strict: bool | None = True, **more: Any) -> Tool:
    schema = {"type": "object", "properties": {"x": value}, "required": ["x"], "$defs": DEFS, **more}
    return Tool("f", schema, strict=is_strict)


def grammar(tool: Tool, family: str = "qwen3-coder") -> Structured:
    made = response_grammar(BY_NAME[family], [tool], True, parallel=False, thinks=False)
    assert made is not None
    return made


def written(value: str, family: str = "qwen3-coder") -> str:
    if family == "glm":
        return f"<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"
    return f"<tool_call>\n<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>"


def read(tool: Tool, text: str, family: str = "qwen3-coder") -> Any:
    reader = ResponseReader(BY_NAME[family], tools=(tool,))
    events = reader.push(text) + reader.finish()
    return json.loads("".join(event.text for event in events if isinstance(event, CallArguments)))


NULLABLE = {"type": ["string", "null"], "maxLength": 3}
AT_MOST_3 = {"type": ["integer", "string"], "maximum": 3}
LISTED = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"$ref": "#/$defs/C"}}]}


@pytest.mark.parametrize("family", ["qwen3-coder", "glm"])
@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        ({"$ref": "#/$defs/C"}, ["red"], ["blue", ""]),
        ({"$ref": "#/$defs/C", "description": "a colour"}, ["red"], ["blue"]),
        ({"$ref": "#/$defs/S", "minLength": 1}, ["ab"], ["", "abc"]),
        ({"allOf": [{"$ref": "#/$defs/S"}]}, ["ab"], ["abc"]),
        ({"anyOf": [{"enum": ["x"]}, {"type": "null"}]}, ["x", "null"], ["y", ""]),
        ({"oneOf": [{"const": "x"}, {"const": "y"}]}, ["x", "y"], ["z"]),
        ({"type": ["string", "null"], "enum": ["x", None]}, ["x", "null"], ["y"]),
        ({"enum": ["", "3", 4]}, ["", "4"], ["3", "5"]),
        ({"type": "string", "enum": ["3", 4]}, ["3"], ["4"]),
        ({"type": "string", "maxLength": 0}, [""], ["a"]),
        ({"type": "string", "minLength": 2}, ["ab", "a\nb"], ["a", ""]),
        (AT_MOST_3, ["3", "x9"], ["9"]),
        (NULLABLE, ["null", "abc"], ["abcd"]),
        ({"anyOf": [{"type": "integer", "maximum": 3}, {"type": "string"}]}, ["3", "up"], ["9", " 9 "]),
        ({"anyOf": [{"enum": [3]}, {"type": "string"}]}, ["3", "x"], ["9"]),
        (LISTED, ["x", "[]", '["red"]'], ["", '["blue"]']),
        ({"type": "string", "pattern": "^a|b$"}, None, None),
        ({"type": "string", "pattern": "^(a|b)$"}, ["a", "b"], ["ab", "c"]),
        ({"type": "string", "pattern": "^[|(]$"}, ["|", "("], ["a"]),
        ({"type": "string", "pattern": r"^a\\$"}, ["a\\"], ["a", "a$"]),
        ({"type": "string", "pattern": "^$"}, [""], ["a"]),
        ({"type": "string", "pattern": "^a*$", "minLength": 2}, ["aa"], ["a", "ab"]),
        ({"type": "string", "pattern": "^a$|^b$"}, None, None),
        ({"type": "string", "pattern": r"^a\$"}, None, None),
        ({"type": "string", "pattern": "a"}, None, None),
        ({"type": "string", "format": "date"}, None, None),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, None, None),
        ({"enum": ["a</parameter></arg_value>"]}, None, None),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_value_is_held_to_its_schema_or_refused(family: str, schema: Any, yes: Any, no: Any) -> None:
    if yes is None:
        with pytest.raises(InvalidRequest, match="tools: f: at /properties/x: a bare string cannot be held to"):
            grammar(tool_of(schema), family)
        assert accepts(grammar(tool_of(schema, is_strict=None), family), written("any", family))
        return
    made = grammar(tool_of(schema), family)
    assert [text for text in yes if not accepts(made, written(text, family))] == []
    assert [text for text in no if accepts(made, written(text, family))] == []
    for text in yes:
        assert jsonschema_rs.is_valid(
            {**schema, "$defs": DEFS}, read(tool_of(schema), written(text, family), family)["x"]
        )


@pytest.mark.parametrize("schema", [NULLABLE, AT_MOST_3, LISTED, {"type": "string", "minLength": 2}], ids=json.dumps)
def test_random_values_are_valid(schema: Any) -> None:
    rng = random.Random(0)
    tool = tool_of(schema)
    closers = ("\n", "</parameter>", "</function>\n</tool_call>", "null", "9", "[", '"red"', "]")
    walks = (walk(grammar(tool), rng, closers, {}, "<tool_call>\n<function=f>\n<parameter=x>") for _ in range(40))
    found = [read(tool, text) for text in islice((text for text in walks if text is not None), 8)]
    assert len(found) >= 4
    assert [value for value in found if not jsonschema_rs.is_valid(tool.schema, value)] == []


def test_required_names_are_required_and_no_others_allowed() -> None:
    made = grammar(Tool("f", {"type": "object", "properties": {"y": {"type": "null"}}, "required": ["x"]}))
    assert accepts(made, written("1"))
    assert not accepts(made, "<tool_call>\n<function=f>\n</function>\n</tool_call>")
    empty = grammar(Tool("f", {"type": "object", "properties": {}, "additionalProperties": False}))
    assert accepts(empty, "<tool_call>\n<function=f>\n</function>\n</tool_call>")
    assert not accepts(empty, written("1"))


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("anyOf", {"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        ("patternProperties", {"properties": {"a": {}}, "patternProperties": {"^b": {"type": "integer"}}}),
        ("additionalProperties", {"additionalProperties": {"type": "integer"}}),
        (r"\$ref", {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}}),
    ],
    ids=json.dumps,
)
def test_what_single_arguments_cannot_be_held_to_is_refused(keyword: str, schema: Any) -> None:
    for family in ("qwen3-coder", "lfm2"):
        with pytest.raises(InvalidRequest, match=f"cannot be held to {keyword}"):
            grammar(Tool("f", {"type": "object", **schema}, strict=True), family)
        assert grammar(Tool("f", {"type": "object", **schema}), family)


def test_a_text_is_a_string_where_it_is_no_value_of_another_type() -> None:
    assert [json_of(text, ("string", "null")) for text in ("null", "x")] == ["null", '"x"']
    assert json_of("١", ("number", "string")) == '"١"'


def test_a_schema_that_holds_itself_many_times_has_all_types_at_once() -> None:
    for name in ("anyOf", "allOf"):
        itself = {"$defs": {"T": {name: [{"$ref": "#/$defs/T"}] * 30}}, "$ref": "#/$defs/T"}
        assert len(types_of(itself, itself)) == 7
    some = {"$defs": {"T": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/T"}]}}, "$ref": "#/$defs/T"}
    assert types_of(some, some) == ("string",)
