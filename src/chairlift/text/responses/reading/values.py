"""Arguments that are not written in JSON: their values as JSON text, by the types that the tool's schema gives them.

Always: what comes out is valid JSON, whatever was written; text that is no value of a wanted type becomes a string.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from chairlift.text.responses.reading.python_literal import literal_to_json

_ALL = ("object", "array", "number", "integer", "boolean", "null", "string")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_MAX_STEPS = 8  # references that are followed


def types_of(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """The JSON types that a schema allows, in its order; all of them where it does not say."""
    found = tuple(dict.fromkeys(_types(schema, root, _MAX_STEPS)))
    return found or _ALL


def _types(schema: Any, root: Mapping[str, Any], steps: int) -> list[str]:
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or steps == 0:
        return []
    declared = schema.get("type")
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, list):
        return [each for each in declared if isinstance(each, str)]
    if "const" in schema or isinstance(schema.get("enum"), list):
        return [_type(value) for value in schema.get("enum", [schema.get("const")])]
    choices = [each for name in ("anyOf", "oneOf", "allOf") for each in schema.get(name) or ()]
    lists = [_types(each, root, steps - 1) for each in choices]
    return [] if any(not each for each in lists) else [name for each in lists for name in each]


def resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema that a local reference leads to; itself where it is none."""
    for _ in range(_MAX_STEPS):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        schema = root
        for name in reference[2:].split("/"):
            name = name.replace("~1", "/").replace("~0", "~")
            schema = schema.get(name) if isinstance(schema, Mapping) else None
    return schema


def _type(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def parameter(parameters: Mapping[str, Any], name: str) -> Any:
    """The schema of one argument; None where the tool's schema does not name it."""
    root = resolved(parameters, parameters)
    properties = root.get("properties") if isinstance(root, Mapping) else None
    return properties.get(name) if isinstance(properties, Mapping) else None


def json_of(text: str, types: tuple[str, ...]) -> str:
    """The value that a bare text means: `3`, `True`, `[1, 2]`, or itself."""
    stripped = text.strip()
    for wanted in types:
        found = _as(stripped, wanted)
        if found is not None:
            return found
        if wanted == "string":
            break
    return json.dumps(text, ensure_ascii=False)


def _as(text: str, wanted: str) -> str | None:
    if wanted in ("integer", "number"):
        is_fit = _NUMBER.fullmatch(text) and (wanted == "number" or set(text).isdisjoint(".eE"))
        return text if is_fit else None
    if wanted in ("boolean", "null"):
        word = _WORDS.get(text.lower())
        return word if word and (word == "null") == (wanted == "null") else None
    if wanted in ("object", "array") and text[:1] == {"object": "{", "array": "["}[wanted]:
        return text if is_json(text) else literal_to_json(text)
    return None


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(name)


def literal_json_of(text: str, types: tuple[str, ...]) -> str:
    """The value of a literal of Python or JSON; a number that was put in quotes is one where the schema wants one."""
    text = text.strip()
    found = text if is_json(text) else literal_to_json(text)
    if found is None:
        return json.dumps(text, ensure_ascii=False)
    if found.startswith('"') and "string" not in types:
        return json_of(json.loads(found, strict=False), types)
    return found
