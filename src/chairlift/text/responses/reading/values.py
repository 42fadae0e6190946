"""Arguments that are not written in JSON: their values as JSON text, by the types that the tool's schema gives them.

Always: what comes out is valid JSON, whatever was written; text that is no value of a wanted type becomes a string.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from chairlift.text.responses.reading.python_literal import literal_to_json

_ALL = ("object", "array", "number", "integer", "boolean", "null", "string")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_MAX_STEPS = 8  # references that are followed
_MAX_BRANCHES = 64
# Keywords that no value is held to.
NOTES = frozenset(("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
                   "$defs", "definitions"))  # fmt: skip


def types_of(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """The JSON types that a schema allows, in its order; all of them where it does not say."""
    return tuple(dict.fromkeys(kind for each in branches(schema, root) for kind in kinds_of(each)))


def kinds_of(branch: Mapping[str, Any]) -> tuple[str, ...]:
    """The types of one branch; all of them where it does not say."""
    declared = branch.get("type")
    if isinstance(declared, str):
        return (declared,)
    if isinstance(declared, list) and declared:
        return tuple(each for each in declared if isinstance(each, str))
    if "const" in branch or isinstance(branch.get("enum"), list):
        return tuple(dict.fromkeys(map(_type, branch["enum"] if "enum" in branch else [branch["const"]]))) or _ALL
    return _ALL


def branches(schema: Any, root: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The schemas of which a value satisfies one: those of `anyOf` and `oneOf`, behind references, each with what
    stands beside them. A schema that cannot be taken apart is one branch."""
    found: list[dict[str, Any]] = []
    waiting = [(schema, _MAX_STEPS)]
    while waiting:
        if len(found) + len(waiting) > _MAX_BRANCHES:
            return [{"allOf": [schema]}]
        one, steps = waiting.pop(0)
        whole = _whole(one, root)
        several = next((name for name in ("anyOf", "oneOf") if isinstance(whole.get(name), list)), None)
        if several is None:
            found.append(whole)
        elif steps:
            rest = {key: each for key, each in whole.items() if key != several}
            waiting[:0] = [(_joined(rest, _whole(each, root)), steps - 1) for each in whole[several]]
    return found or [{}]


def _whole(schema: Any, root: Mapping[str, Any], joins: bool = True) -> dict[str, Any]:
    """With what a reference adds to it, and all of several: one deep, because a schema may hold itself."""
    if not isinstance(schema, Mapping):
        return {} if schema is not False else {"enum": []}
    target = resolved(schema, root)
    if target is not schema:
        beside = {key: each for key, each in schema.items() if key != "$ref"}
        schema = _joined(beside, target if isinstance(target, Mapping) else {})
    parts = schema.get("allOf")
    if not isinstance(parts, list) or not joins:
        return dict(schema)
    made = {key: each for key, each in schema.items() if key != "allOf"}
    for part in parts:
        made = _joined(made, _whole(part, root, joins=False))
    return made


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What satisfies both; of two notes, the first counts."""
    made = {**other, **one}
    if "type" in one and "type" in other:
        made["type"] = [kind for kind in kinds_of(one) if kind in kinds_of(other)]
    both = one.keys() & other.keys() - NOTES - {"type"}
    if made.get("type") != [] and all(one[key] == other[key] for key in both):
        return made
    return {"allOf": [dict(one), dict(other)]} | ({"type": made["type"]} if made.get("type") else {})


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
    """The value that a bare text means: `3`, `True`, `[1, 2]`, or itself where it is no value of another type."""
    stripped = text.strip()
    for wanted in types:
        found = _as(stripped, wanted)
        if found is not None:
            return found
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
