"""A JSON schema without the words that constrain nothing, which are the larger part of many: parts that differ in them
alone are equal then, and grammars of a hundred tools stay small."""

from typing import Any

from chairlift.text.structured.places import BY_NAME, HOLDERS

ANNOTATIONS = frozenset(("title", "description", "default", "examples"))


def constraints_of(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {key: _held(key, value) for key, value in schema.items() if key not in ANNOTATIONS}


def _held(key: str, value: Any) -> Any:
    if key not in HOLDERS:
        return value
    if isinstance(value, list):
        return [constraints_of(each) for each in value]
    if isinstance(value, dict) and key in BY_NAME:
        return {name: constraints_of(each) for name, each in value.items()}
    return constraints_of(value)
