"""What keeps answers from being held to a JSON schema that the grammar library takes, each fault with its place."""

from collections.abc import Iterator
from typing import Any

from chairlift.text.structured.places import all_parts
from chairlift.text.structured.shortest_json import NoAnswer, shortest_json
from chairlift.text.structured.shortest_match import Unknown

MAX_OPTIONAL = 200  # properties: each is one more way on at every place between properties
_MAX_EXACT = 2**53  # the library reads numbers as doubles, and would write another one


def own_faults(schema: Any) -> Iterator[tuple[str, str]]:
    """Pointers, and what is wrong there."""
    for place, part in all_parts(schema):
        if (num := _num_optional(part)) > MAX_OPTIONAL:
            way_out = f"an object may have {MAX_OPTIONAL}; list more of them in required"
            yield place, f"{num} properties may be left out, and {way_out}"
        if any(map(_is_inexact, (part.get("const"), part.get("enum")))):
            yield place, "const and enum may hold whole numbers up to 2^53; give larger ones as text"


def why_endless(schema: Any) -> str:
    """Why no finite text has the shape; empty where one has or it cannot be told."""
    try:
        shortest_json(schema)
    except NoAnswer as error:
        return str(error)
    except Unknown:
        pass
    return ""


def _num_optional(schema: dict[str, Any]) -> int:
    named, required = schema.get("properties"), schema.get("required", ())
    if not isinstance(named, dict) or len(named) <= MAX_OPTIONAL:
        return 0
    return len(named.keys() - set(required if isinstance(required, list) else ()))


def _is_inexact(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_is_inexact, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) > _MAX_EXACT
