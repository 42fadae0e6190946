"""A JSON schema in which objects hold the properties that they name, and no others unless the schema speaks of them.

Without a word about others a schema allows any, and a model that may add properties sometimes adds them without end.
Always: what a closed schema allows, the schema allows. So parts that are combined with others, or tell what is not
allowed, stay as they are.
"""

from typing import Any

_COMBINED = ("allOf", "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties", "$dynamicRef")
_CHOICES = ("anyOf", "$ref")
_OF_PROPERTIES = ("properties", "required", "additionalProperties", "patternProperties", "minProperties")
_SPEAK_OF_OTHERS = ("additionalProperties", "patternProperties", "$ref")
_BY_NAME = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "prefixItems")
_HOLDERS = frozenset((*_BY_NAME, *_LISTS, "items"))
_MAX_DEPTH = 64


def closed(schema: dict[str, Any], source: str) -> dict[str, Any]:
    """`source`: the schema in JSON."""
    is_combined = any(f'"{name}"' in source for name in _COMBINED) or _has_siblings(schema)
    return schema if is_combined else _closed(schema, _MAX_DEPTH)


def _has_siblings(value: Any) -> bool:
    """Whether a part says something of an object's properties beside a choice or a reference that may say more."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if not part.keys().isdisjoint(_CHOICES) and not part.keys().isdisjoint(_OF_PROPERTIES):
                return True
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return False


def _closed(schema: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or not depth or schema.keys().isdisjoint(_HOLDERS):
        return schema
    made = dict(schema)
    for name in _BY_NAME:
        if isinstance(held := schema.get(name), dict):
            made[name] = {key: _closed(each, depth - 1) for key, each in held.items()}
    for name in _LISTS:
        if isinstance(parts := schema.get(name), list):
            made[name] = [_closed(each, depth - 1) for each in parts]
    if "items" in schema:
        made["items"] = _closed(schema["items"], depth - 1)
    if _names_all(schema):
        made["additionalProperties"] = False
    return made


def _names_all(schema: dict[str, Any]) -> bool:
    """Whether an object can have all it needs without other properties."""
    named, required, least = schema.get("properties"), schema.get("required", []), schema.get("minProperties", 0)
    if not isinstance(named, dict) or not named or any(name in schema for name in _SPEAK_OF_OTHERS):
        return False
    has_required = isinstance(required, list) and all(name in named for name in required)
    return has_required and isinstance(least, int | float) and least <= len(named)
