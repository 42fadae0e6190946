"""The schemas that the arguments of a tool are held to.

Always: a tool that asks for `strict` is held to its schema or refused, with the place; another one whose schema a
grammar cannot hold to gets any JSON object.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.reading.values import resolved
from chairlift.text.responses.tools.tool import Tool
from chairlift.text.structured.grammar import json_schema_fault
from chairlift.text.structured.places import failing_place
from chairlift.text.structured.source import Kept

_SHARED = ("$defs", "definitions")
_OF_WHOLE_OBJECTS = (
    "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "minProperties", "maxProperties",
    "patternProperties", "propertyNames",
)  # fmt: skip


def schema_of(tool: Tool) -> dict[str, Any]:
    schema = tool.schema
    fault = _fault(json.dumps(schema, sort_keys=False))
    if not fault:
        return schema
    if tool.strict:
        place = failing_place(schema, fault, json_schema_fault)
        raise InvalidRequest(f"tools[{tool.index}].function.parameters", f"at {place or '/'}: {fault}")
    return {"type": "object"}


_fault = Kept[str, str](lambda schema: json_schema_fault(json.loads(schema)), len, most=4 * 2**20)


def arguments_of(schema: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], bool]] | None:
    """Name, schema and whether it must be there, of each argument in its order; None where the schema does not list
    them, so that any will do."""
    root = resolved(schema, schema)
    properties = root.get("properties") or {} if isinstance(root, Mapping) else None
    if not isinstance(properties, Mapping) or not all(map(_stands_alone, properties.values())):
        return None
    shared = {name: schema[name] for name in _SHARED if name in schema}
    required, more = root.get("required") or (), root.get("additionalProperties", True)
    listed = {**properties, **{name: more for name in required if name not in properties}}
    if not listed and more is not False:
        return None
    given = {name: each if isinstance(each, dict) else {} for name, each in listed.items()}
    return [(name, {**shared, **each} if any(_references(each)) else each, name in required)
            for name, each in given.items()]  # fmt: skip


def unlisted(schema: Mapping[str, Any]) -> str | None:
    """A keyword that arguments one by one, as `arguments_of` lists them, are not held to."""
    root = resolved(schema, schema)
    found = next((name for name in _OF_WHOLE_OBJECTS if name in root), None)
    if found is not None or arguments_of(schema) is not None:
        return found
    return "additionalProperties" if root.get("additionalProperties") else "$ref" if root.get("properties") else None


def _stands_alone(schema: Any) -> bool:
    """Whether its references lead to what is shared, and not into the schema around it."""
    return all(reference.startswith(("#/$defs/", "#/definitions/")) for reference in _references(schema))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _references(each)
