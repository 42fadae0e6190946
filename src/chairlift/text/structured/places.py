"""Where in a JSON schema a fault lies, as a JSON pointer.

Always: the search takes little time whatever the schema; the place of a fault that was not found in it is an outer one.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

Faults = Callable[[Any], str]  # why no answer can be held to a schema; empty where one can
Parts = list[tuple[str, dict[str, Any]]]  # by their pointers
# Keywords that hold a schema, a list of them, or schemas by name.
HOLDERS = (
    "properties", "patternProperties", "$defs", "definitions", "items", "prefixItems", "additionalItems",
    "additionalProperties", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "contains", "propertyNames",
)  # fmt: skip
BY_NAME = HOLDERS[:4]
_SHARED = ("$defs", "definitions")  # what references lead to
_LEFT_OUT = ("$ref", *_SHARED, "properties", "required")  # have no faults of their own, or take time
_MAX_SECONDS = 0.015  # of the thread's processor time
_CHUNK = 2048  # characters of parts that are looked at in one trial


def failing_place(schema: Any, fault: str, fault_of: Faults) -> str:
    """The pointer of a part that has this fault by itself, or of the deepest one that has it with all below it; empty:
    the schema itself."""
    until_s = time.thread_time() + _MAX_SECONDS
    for some in _chunks(schema):
        if time.thread_time() > until_s:
            return ""
        if _have_fault(some, fault, fault_of):
            return _first(some, fault, fault_of)
    return _deepest(schema, fault, fault_of, until_s)


def _chunks(schema: Any) -> Iterator[Parts]:
    """All parts, with any value allowed below them."""
    some: Parts = []
    num_characters = 0
    for place, part in all_parts(schema):
        some.append((place, _opened(part)))
        num_characters += len(json.dumps(some[-1][1]))
        if num_characters > _CHUNK:
            yield some
            some, num_characters = [], 0
    yield some


def _have_fault(some: Parts, fault: str, fault_of: Faults) -> bool:
    return fault_of({"type": "array", "prefixItems": [part for _, part in some]}) == fault


def _first(some: Parts, fault: str, fault_of: Faults) -> str:
    """The place of the first of them that has it, found by halves."""
    while len(some) > 1:
        half = some[: len(some) // 2]
        some = half if _have_fault(half, fault, fault_of) else some[len(half) :]
    return some[0][0]


def _deepest(schema: Any, fault: str, fault_of: Faults, until_s: float) -> str:
    shared = {name: schema[name] for name in _SHARED if isinstance(schema, dict) and name in schema}
    place, part = "", schema
    while True:
        for below, inner in parts(part):
            if time.thread_time() > until_s:
                return place
            if isinstance(inner, dict) and fault_of(shared | inner) == fault:
                place, part = place + below, inner
                break
        else:
            return place


def all_parts(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and all below it, outer ones first."""
    waiting = [("", schema)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, dict):
            yield place, part
            waiting += [(place + below, inner) for below, inner in parts(part)][::-1]


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    """With any value allowed below it."""
    made = {key: value for key, value in schema.items() if key not in _LEFT_OUT}
    for name in made.keys() & set(HOLDERS):
        held = made[name]
        if isinstance(held, list):
            made[name] = [{}] * bool(held)
        elif isinstance(held, dict):
            made[name] = {key: {} for key in held} if name == "patternProperties" else {}
    return made


def parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas right below one, by the pointer from it."""
    for name in HOLDERS if isinstance(schema, dict) else ():
        held = schema.get(name)
        if isinstance(held, list):
            yield from ((f"/{name}/{index}", each) for index, each in enumerate(held))
        elif isinstance(held, dict) and name in BY_NAME:
            yield from ((f"/{name}/{_escaped(key)}", each) for key, each in held.items())
        elif isinstance(held, dict):
            yield f"/{name}", held


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
