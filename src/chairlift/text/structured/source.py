"""The source texts of shapes, read: what they hold, or an error that says why they hold none."""

import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from chairlift.core.errors import InvalidRequest
from chairlift.text.structured.places import BY_NAME, HOLDERS

ANNOTATIONS = frozenset(("title", "description", "default", "examples"))


def constraints_of(schema: Any) -> Any:
    """A JSON schema without the words that constrain nothing, which are the larger part of many: parts that differ in
    them alone are equal then, and grammars of a hundred tools stay small.
    """
    if not isinstance(schema, dict):
        return schema
    return {key: _held(key, value) for key, value in schema.items() if key not in ANNOTATIONS}


def _held(key: str, value: Any) -> Any:
    if key not in HOLDERS:
        return value
    if isinstance(value, list):
        return [constraints_of(each) for each in value]
    if isinstance(value, dict) and key in BY_NAME:
        return {name: constraints_of(each) for name, each in value.items()}
    return constraints_of(value)


MAX_CHARACTERS = 128 * 1024  # of a schema or grammar


def wrong(message: str) -> InvalidRequest:
    return InvalidRequest("structured_outputs", message.strip())


def check_length(source: str) -> None:
    if len(source) > MAX_CHARACTERS:
        raise wrong(f"must have at most {MAX_CHARACTERS} characters, got {len(source)}")


# Of one expression or rule: the library takes 0.3 s for as many in a row, and four times that for twice as many.
MAX_OPTIONAL = 1000
_SIGN = re.compile(r"\\.|[?*{]", re.DOTALL)


def num_optional(pattern: str) -> int:
    """Parts of an expression that may be left out, or a few more."""
    return sum(1 for sign in _SIGN.findall(pattern) if len(sign) == 1) - pattern.count("(?")


def check_optional(counts: Iterable[int]) -> None:
    """Of the expressions and rules in a shape. Raises `InvalidRequest`."""
    if (num := math.isqrt(sum(count * count for count in counts))) > MAX_OPTIONAL:
        why = (
            f"{num} parts of an expression or rule may be left out or repeated (?, * and {{}}), and {MAX_OPTIONAL} are"
        )
        raise wrong(f"{why} the most; divide it into rules, or say less of what may come")


def loaded(source: str) -> Any:
    """What a text in JSON holds."""
    try:
        return msgspec.json.decode(source)
    except (ValueError, RecursionError) as error:
        raise wrong(f"not JSON: {error}") from error


def choices(source: str) -> list[str]:
    texts = loaded(source)
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise wrong("choices must be a list of texts, none of them empty")
    return texts
