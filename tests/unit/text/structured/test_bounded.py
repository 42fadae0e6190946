"""Answers that do not go on without end: of objects, and of numbers between bounds."""

from typing import Any

import pytest

from chairlift.core.structured import Structured
from chairlift.text.structured.bounded import bounded
from chairlift.text.structured.grammar import json_schema_fault
from chairlift.text.structured.shortest import is_allowed as accepts

NAMED = {"type": "object", "properties": {"a": {"type": "integer"}}}
SHUT = NAMED | {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (NAMED, SHUT),
        (NAMED | {"required": ["a"]}, SHUT | {"required": ["a"]}),
        ({"type": "array", "items": NAMED}, {"type": "array", "items": SHUT}),
        ({"anyOf": [NAMED, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        ({"prefixItems": [NAMED]}, {"prefixItems": [SHUT]}),
        (
            {"properties": {"if": NAMED, "not": {"enum": ["allOf"]}}},
            {"properties": {"if": SHUT, "not": {"enum": ["allOf"]}}, "additionalProperties": False},
        ),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"y": NAMED}}}},
            {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"y": SHUT}, "additionalProperties": False}}},
        ),
    ],
)
def test_objects_are_closed(schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert bounded(schema) == wanted


SHARE = {"type": "number", "minimum": 0, "maximum": 1}


@pytest.mark.parametrize("schema", [SHARE, SHARE | {"type": ["number", "null"]},
                                    {"type": "number", "exclusiveMinimum": -5.5, "maximum": 1e6}])  # fmt: skip
def test_numbers_between_bounds_have_nine_digits(schema: dict[str, Any]) -> None:
    assert bounded({"type": "array", "items": schema}) == {"type": "array", "items": schema | {"multipleOf": 1e-9}}
    fault = json_schema_fault(schema)
    assert not fault, fault
    digits = "0." + "1" * 9
    assert accepts(Structured.json_schema(schema), digits)
    assert not accepts(Structured.json_schema(schema), digits + "1")


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
        {"type": "number"},
        {"type": "number", "minimum": 0},
        {"type": "number", "minimum": 0, "maximum": 1e-6},
        {"type": "number", "minimum": 0, "maximum": 1e12},
        {"type": "integer", "minimum": 0, "maximum": 9},
        SHARE | {"multipleOf": 0.5},
        {"properties": {"a": {}}, "required": "a"},
    ],
)
def test_others_stay_as_they_are(schema: dict[str, Any]) -> None:
    assert bounded(schema) == schema
