"""A JSON schema whose answers do not go on without end where a model goes astray.

Objects hold the properties that they name, and no others unless the schema speaks of them. Numbers between two bounds
have nine digits behind the point at the most.

Always: what a bounded schema allows, the schema allows. So parts that are combined with others, or tell what is not
allowed, stay as they are.
"""

from collections.abc import KeysView
from typing import Any

from chairlift.text.structured.places import all_parts

_COMBINED = frozenset(("allOf", "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"))
_CHOICES = ("anyOf", "$ref")
_OF_PROPERTIES = ("properties", "required", "additionalProperties", "patternProperties", "minProperties")
_SPEAK_OF_OTHERS = ("additionalProperties", "patternProperties", "$ref")
_BY_NAME = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "prefixItems")
_HOLDERS = frozenset((*_BY_NAME, *_LISTS, "items"))
_BOUNDS = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
_FINEST, _NARROWEST, _LARGEST = 1e-9, 1e-3, 1e6  # of bounded numbers; the library takes no more digits
_MAX_DEPTH = 64


def bounded(schema: dict[str, Any]) -> dict[str, Any]:
    is_combined = any(_is_combined(part.keys()) for _, part in all_parts(schema))
    return schema if is_combined else _bounded(schema, _MAX_DEPTH)


def _is_combined(names: KeysView[str]) -> bool:
    """Also where something is said of an object's properties beside a choice or a reference that may say more."""
    has_siblings = not names.isdisjoint(_CHOICES) and not names.isdisjoint(_OF_PROPERTIES)
    return has_siblings or not names.isdisjoint(_COMBINED)


def _bounded(schema: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or not depth:
        return schema
    if "multipleOf" not in schema and _is_narrow(schema):
        schema = schema | {"multipleOf": _FINEST}
    if schema.keys().isdisjoint(_HOLDERS):
        return schema
    made = dict(schema)
    for name in _BY_NAME:
        if isinstance(held := schema.get(name), dict):
            made[name] = {key: _bounded(each, depth - 1) for key, each in held.items()}
    for name in _LISTS:
        if isinstance(parts := schema.get(name), list):
            made[name] = [_bounded(each, depth - 1) for each in parts]
    if "items" in schema:
        made["items"] = _bounded(schema["items"], depth - 1)
    if _names_all(schema):
        made["additionalProperties"] = False
    return made


def _is_narrow(schema: dict[str, Any]) -> bool:
    """Whether it is a number between bounds with many multiples of the finest between them."""
    kind = schema.get("type")
    low, high = (schema.get(name, schema.get(other)) for name, other in _BOUNDS)
    is_number = kind == "number" or (isinstance(kind, list) and "number" in kind)
    if not is_number or not isinstance(low, int | float) or not isinstance(high, int | float):
        return False
    return high - low >= _NARROWEST and max(abs(low), abs(high)) <= _LARGEST


def _names_all(schema: dict[str, Any]) -> bool:
    """Whether an object can have all it needs without other properties."""
    named, required, least = schema.get("properties"), schema.get("required", []), schema.get("minProperties", 0)
    if not isinstance(named, dict) or not named or any(name in schema for name in _SPEAK_OF_OTHERS):
        return False
    has_required = isinstance(required, list) and all(name in named for name in required)
    return has_required and isinstance(least, int | float) and least <= len(named)
