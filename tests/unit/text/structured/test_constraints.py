"""Words that constrain nothing are left out of grammars, and nothing else is."""

from chairlift.text.structured.lark import json_value
from chairlift.text.structured.source import constraints_of

WORDS = {"title": "A", "description": "of a thing", "default": {}, "examples": [1]}
TEXT = {"type": "string"}


def test_words_are_left_out_wherever_a_schema_stands() -> None:
    schema = WORDS | {
        "properties": {"a": TEXT | WORDS},
        "items": TEXT | WORDS,
        "anyOf": [TEXT | WORDS, True],
        "additionalProperties": False,
        "$defs": {"b": {"not": TEXT | WORDS}},
    }
    assert constraints_of(schema) == {
        "properties": {"a": TEXT},
        "items": TEXT,
        "anyOf": [TEXT, True],
        "additionalProperties": False,
        "$defs": {"b": {"not": TEXT}},
    }


def test_properties_and_values_of_such_names_stay() -> None:
    schema = {"properties": {"title": TEXT, "default": TEXT}, "required": ["title"], "const": WORDS, "enum": [WORDS]}
    assert constraints_of(schema) == schema


def test_parts_that_differ_in_words_alone_are_written_once() -> None:
    long = {f"p{i}": TEXT | {"minLength": 12, "description": f"number {i}"} for i in range(50)}
    assert json_value({"properties": long}).count("minLength") == 1
