"""Objects hold the properties that they name, unless the schema speaks of others."""

import json
from typing import Any

import pytest

from chairlift.text.structured.closed import closed

NAMED = {"type": "object", "properties": {"a": {"type": "integer"}}}
SHUT = NAMED | {"additionalProperties": False}


def made(schema: dict[str, Any]) -> Any:
    return closed(schema, json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (NAMED, SHUT),
        (NAMED | {"required": ["a"]}, SHUT | {"required": ["a"]}),
        ({"type": "array", "items": NAMED}, {"type": "array", "items": SHUT}),
        ({"anyOf": [NAMED, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        ({"prefixItems": [NAMED]}, {"prefixItems": [SHUT]}),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"y": NAMED}}}},
            {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"y": SHUT}, "additionalProperties": False}}},
        ),
    ],
)
def test_objects_are_closed(schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert made(schema) == wanted


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        NAMED | {"additionalProperties": True},
        NAMED | {"additionalProperties": {"type": "string"}},
        NAMED | {"patternProperties": {"^x": {}}},
        NAMED | {"required": ["b"]},
        NAMED | {"minProperties": 2},
        NAMED | {"anyOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}}]},
        {"anyOf": [NAMED, {"type": "null"}], "required": ["b"]},
        {"$ref": "#/$defs/x", "properties": {"b": {}}, "$defs": {"x": NAMED}},
        {"allOf": [NAMED, {"properties": {"b": {}}}]},
        {"oneOf": [NAMED, {"properties": {"b": {}}}]},
        NAMED | {"not": {"required": ["a"]}},
        {"properties": 5},
        {"properties": {"a": {}}, "required": "a"},
    ],
)
def test_others_stay_as_they_are(schema: dict[str, Any]) -> None:
    assert made(schema) == schema
