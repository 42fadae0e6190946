"""The shortest JSON that a schema allows.

Always: a reference, with what is said beside it, is followed at most once on the way down, because a shortest value
never holds itself; so every search ends, and what needs itself has no answer.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from chairlift.text.structured.shortest_match import Cost, Unknown, limited, shortest_match
from chairlift.text.structured.source import ANNOTATIONS

_SILENT = ANNOTATIONS | {"$schema", "$defs", "definitions"}
_REFERENCE = b'"$ref":'  # in no text: quotes are escaped there
_MAX_LENGTH = 16 * 1024  # characters of what comes out
_MAX_PARTS = 2000  # schemas that are looked at
_FORMATS = {
    "date": "2000-01-01", "time": "00:00:00Z", "date-time": "2000-01-01T00:00:00Z", "email": "a@a", "ipv4": "0.0.0.0",
    "uuid": "00000000-0000-0000-0000-000000000000", "ipv6": "::", "hostname": "a", "uri": "a:", "duration": "P1D",
}  # fmt: skip
_CONSTRAINTS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_ALL = ("number", "string", "array", "object", "null", "boolean")
_NUMBERS = sorted(range(-999, 1000), key=lambda number: (len(str(number)), abs(number)))


class NoAnswer(Exception):
    """No finite value satisfies the schema at this place."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(why)
        self.place = place


def shortest_json(schema: Any, cost: Cost = len) -> str:
    """Of several values, the one of least cost."""
    try:
        return _Search(schema, cost).value(schema, "", (_way("#", {}),))
    except RecursionError as error:
        raise Unknown from error


class _Search:
    def __init__(self, root: Any, cost: Cost) -> None:
        self._root = root
        self._cost = limited(cost)
        self._num_parts = 0
        self._known: dict[bytes, str] = {}  # of parts without references, by their JSON: many are alike

    def value(self, schema: Any, place: str, on_way: tuple[bytes, ...]) -> str:
        self._cost("")  # of nothing: it tells that no time is left
        key = msgspec.json.encode(schema)
        if key in self._known:
            return self._known[key]
        found = self._value(schema, place, on_way)
        if len(found) > _MAX_LENGTH:
            raise Unknown
        if _REFERENCE not in key:
            self._known[key] = found
        return found

    def _value(self, schema: Any, place: str, on_way: tuple[bytes, ...]) -> str:
        self._num_parts += 1
        if self._num_parts > _MAX_PARTS:
            raise Unknown
        if schema is True or schema == {}:
            return "0"
        if schema is False:
            raise NoAnswer(place, "allows no value")
        if not isinstance(schema, Mapping):
            raise Unknown
        if "$ref" in schema:
            return self._referred(schema, place, on_way)
        if "const" in schema:
            return _written(schema["const"])
        if "enum" in schema:
            return self._best(place, [partial(_written, each) for each in schema["enum"]])
        for name in ("anyOf", "oneOf"):
            if name in schema:
                return self._one_of(schema, name, place, on_way)
        if "allOf" in schema:
            return self.value(_merged(schema, schema["allOf"]), place, on_way)
        types = schema.get("type", _ALL)
        types = types if isinstance(types, list | tuple) else (types,)
        return self._best(place, [partial(self._typed, kind, schema, place, on_way) for kind in types])

    def _best(self, place: str, ways: list[Callable[[], str]]) -> str:
        """The shortest of several; those without an answer do not count while another has one."""
        found: list[str] = []
        fault = NoAnswer(place, "allows no value")
        for way in ways:
            self._cost("")
            try:
                found.append(way())
            except NoAnswer as error:
                fault = error
        if not found:
            raise fault
        return min(found, key=self._cost) if len(found) > 1 else found[0]

    def _referred(self, schema: Mapping[str, Any], place: str, on_way: tuple[bytes, ...]) -> str:
        reference = schema["$ref"]
        rest = _beside(schema, "$ref")
        way = _way(reference, rest)
        if way in on_way:
            raise NoAnswer(place, "has no finite answer: it needs itself")
        target = self._target(reference)
        if rest and isinstance(target, Mapping):
            return self.value(_merged(rest, [target]), place, (*on_way, way))
        return self.value(target, reference[1:], (*on_way, way))

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unknown
        target = self._root
        for name in reference[1:].split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and name.isdigit() and int(name) < len(target):
                target = target[int(name)]
            elif isinstance(target, Mapping) and name in target:
                target = target[name]
            else:
                raise Unknown
        return target

    def _one_of(self, schema: Mapping[str, Any], name: str, place: str, on_way: tuple[bytes, ...]) -> str:
        rest = _beside(schema, name)
        ways: list[Callable[[], str]] = []
        for i, each in enumerate(schema[name]):
            can_merge = rest and isinstance(each, Mapping) and "$ref" not in each
            inner = _merged(rest, [each]) if can_merge else each
            ways.append(partial(self.value, inner, f"{place}/{name}/{i}", on_way))
        return self._best(place, ways)

    def _typed(self, kind: Any, schema: Mapping[str, Any], place: str, on_way: tuple[bytes, ...]) -> str:
        if kind in ("integer", "number"):
            return _number(schema)
        if kind == "string":
            return _string(schema, self._cost)
        if kind == "array":
            return self._array(schema, place, on_way)
        if kind == "object":
            return self._object(schema, place, on_way)
        if kind in ("null", "boolean"):
            return "null" if kind == "null" else "true"
        raise Unknown

    def _array(self, schema: Mapping[str, Any], place: str, on_way: tuple[bytes, ...]) -> str:
        least = schema.get("minItems", 0)
        if least > schema.get("maxItems", least):
            raise NoAnswer(place, "minItems is larger than maxItems")
        if least > _MAX_PARTS:
            raise Unknown
        first = schema.get("prefixItems", [])
        items = [self.value(each, f"{place}/prefixItems/{i}", on_way) for i, each in enumerate(first[:least])]
        if least > len(items):
            each = self.value(schema.get("items", True), f"{place}/items", on_way)
            if len(each) * least > _MAX_LENGTH:
                raise Unknown
            items += [each] * (least - len(items))
        return f"[{','.join(items)}]"

    def _object(self, schema: Mapping[str, Any], place: str, on_way: tuple[bytes, ...]) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("minProperties", 0) > len(set(required)) or "patternProperties" in schema:
            raise Unknown
        needed = set(required)
        listed = [name for name in properties if name in needed]
        parts = [(name, properties[name], f"{place}/properties/{_pointed(name)}") for name in listed]
        more = schema.get("additionalProperties", True)
        parts += [(name, more, f"{place}/required") for name in required if name not in properties]
        return f"{{{','.join(f'{_written(name)}:{self.value(each, at, on_way)}' for name, each, at in parts)}}}"


def _beside(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What is said beside a keyword."""
    return {key: each for key, each in schema.items() if key != name and key not in _SILENT}


def _way(reference: str, rest: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode((reference, rest))


def _number(schema: Mapping[str, Any]) -> str:
    bounds = [schema.get(name) for name in _CONSTRAINTS]
    for number in _NUMBERS:
        if _fits(number, *bounds):
            return str(number)
    raise Unknown


def _fits(number: int, least: Any, most: Any, above: Any, below: Any, multiple: Any) -> bool:
    return (
        (least is None or number >= least)
        and (most is None or number <= most)
        and (above is None or number > above)
        and (below is None or number < below)
        and (multiple is None or number % multiple == 0)
    )


def _string(schema: Mapping[str, Any], cost: Cost) -> str:
    least = schema.get("minLength", 0)
    if "format" in schema:
        if schema["format"] not in _FORMATS:
            raise Unknown
        return _written(_FORMATS[schema["format"]])
    text = ""
    if "pattern" in schema:
        found = shortest_match(schema["pattern"], cost)
        if found is None or len(found) < least:
            raise Unknown
        text = found
    elif least > _MAX_LENGTH:
        raise Unknown
    return _written(text or "a" * least)


def _merged(schema: Mapping[str, Any], parts: Any) -> dict[str, Any]:
    """All of them at once, where no keyword but the lists of an object's parts is said twice."""
    made = {key: each for key, each in schema.items() if key != "allOf"}
    for part in parts:
        if not isinstance(part, Mapping) or "$ref" in part or "allOf" in part:
            raise Unknown
        for key, each in part.items():
            if key == "properties":
                made[key] = {**made.get(key, {}), **each}
            elif key == "required":
                made[key] = list(dict.fromkeys([*made.get(key, []), *each]))
            elif made.setdefault(key, each) != each:
                raise Unknown
    return made


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pointed(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
