"""The unknown fields of a body, at any depth.

{"prompt": "a", "frob": 1, "stream_options": {"x": 1}}     frob, stream_options.x
{"messages": [{"role": "user", "content": "a", "y": 1}]}   messages[].y
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

Known = dict[str, "Known | None"]  # names of fields, and those inside objects


@cache
def known_of(kind: type[msgspec.Struct]) -> Known:
    known = _known(inspect.type_info(kind))
    assert known is not None
    return known


def unknown(value: Any, known: Known, path: str = "") -> Iterator[str]:
    """One name for each; names repeat over the objects of a list. Null counts as absent."""
    if isinstance(value, list):
        for item in value:
            yield from unknown(item, known, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in known:
                if inner is not None:
                    yield path + name
            elif (inside := known[name]) is not None:
                yield from unknown(inner, inside, f"{path}{name}{'[]' if isinstance(inner, list) else ''}.")


def _known(shape: inspect.Type) -> Known | None:
    """None for types without objects inside, such as the tokens of a prompt, which are not searched."""
    match shape:
        case inspect.StructType():
            return {field.encode_name: _known(field.type) for field in shape.fields}
        case inspect.ListType():
            return _known(shape.item_type)
        case inspect.UnionType():
            return next((known for known in map(_known, shape.types) if known is not None), None)
    return None
