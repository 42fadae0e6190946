"""Where in a JSON schema a fault lies, as a JSON pointer: the smallest part that has the fault by itself."""

from collections.abc import Callable, Iterator
from typing import Any

# Keywords that hold a schema, a list of them, or schemas by name.
_HOLDERS = (
    "properties", "patternProperties", "$defs", "definitions", "items", "prefixItems", "additionalProperties",
    "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "contains", "propertyNames",
)  # fmt: skip
_SHARED = ("$defs", "definitions")  # what references lead to
_MAX_TRIALS = 200  # parts that are looked at: a bound on the time


def failing_place(schema: Any, fault: str, fault_of: Callable[[Any], str]) -> str:
    """The pointer of the deepest part for which `fault_of` still gives this fault; empty: the schema itself."""
    shared = {name: schema[name] for name in _SHARED if isinstance(schema, dict) and name in schema}
    place, part, trials = "", schema, 0
    while True:
        for below, inner in parts(part):
            trials += 1
            if trials > _MAX_TRIALS:
                return place
            if isinstance(inner, dict) and fault_of(shared | inner) == fault:
                place, part = place + below, inner
                break
        else:
            return place


def parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas right below one, by the pointer from it."""
    for name in _HOLDERS if isinstance(schema, dict) else ():
        held = schema.get(name)
        if isinstance(held, list):
            yield from ((f"/{name}/{index}", each) for index, each in enumerate(held))
        elif isinstance(held, dict) and name in _HOLDERS[:4]:
            yield from ((f"/{name}/{_escaped(key)}", each) for key, each in held.items())
        elif isinstance(held, dict):
            yield f"/{name}", held


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
