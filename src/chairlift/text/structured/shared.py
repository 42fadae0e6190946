"""A JSON schema with equal parts written once: the grammar library makes rules of each part anew, which takes most of
the time of a schema with a hundred properties.

Always: the same answers are allowed. Only properties and items are looked at, since references inside of `allOf`,
`oneOf` and their like may be more than the library can follow.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from chairlift.text.structured.places import all_parts

_MIN_CHARACTERS = 24  # of a part that is worth a reference
_MAX_DEPTH = 8
_BASES = ("$id", "$anchor", "$dynamicRef", "id")  # may give references another meaning
_KEPT = re.compile(r"#$|#/(\$defs|definitions)/")  # what references may lead to: nothing there is replaced
_encode = msgspec.json.Encoder().encode
_NAME = "shared-{}"


def with_shared_parts(schema: dict[str, Any]) -> dict[str, Any]:
    """As it is where nothing is gained."""
    if not all(_can_share(part) for _, part in all_parts(schema)):
        return schema
    texts = list(_texts(schema, 0))
    counts = Counter(text for _, text in texts)
    names = {text: _NAME.format(index) for index, text in enumerate(text for text, num in counts.items() if num > 1)}
    defined = schema.get("$defs", {})
    if not names or not isinstance(defined, dict) or not defined.keys().isdisjoint(names.values()):
        return schema
    made = _shared(schema, {part: names[text] for part, text in texts if text in names})
    return made | {"$defs": defined | {name: msgspec.json.decode(text) for text, name in names.items()}}


def _can_share(part: dict[str, Any]) -> bool:
    reference = part.get("$ref", "#")
    return part.keys().isdisjoint(_BASES) and isinstance(reference, str) and bool(_KEPT.match(reference))


def _texts(schema: dict[str, Any], depth: int) -> Iterator[tuple[int, bytes]]:
    """Of the parts that may be shared, by their ids in memory; those inside of a part too."""
    for part in _parts(schema) if depth < _MAX_DEPTH else ():
        text = _encode(part)
        if len(text) >= _MIN_CHARACTERS:
            yield id(part), text
            yield from _texts(part, depth + 1)


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    properties = schema.get("properties")
    held = [*(properties.values() if isinstance(properties, dict) else ()), schema.get("items")]
    yield from (each for each in held if isinstance(each, dict) and "$ref" not in each)


def _shared(schema: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    made = dict(schema)
    if isinstance(properties := schema.get("properties"), dict):
        made["properties"] = {key: _replaced(part, names) for key, part in properties.items()}
    if "items" in schema:
        made["items"] = _replaced(schema["items"], names)
    return made


def _replaced(part: Any, names: dict[int, str]) -> Any:
    if not isinstance(part, dict):
        return part
    name = names.get(id(part))
    return _shared(part, names) if name is None else {"$ref": f"#/$defs/{name}"}
