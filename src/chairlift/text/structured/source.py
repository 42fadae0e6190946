"""The source texts of shapes, read: what they hold, or an error that says why they hold none; what is kept of them."""

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any, Generic, TypeVar

import msgspec

from chairlift.core.errors import InvalidRequest
from chairlift.text.structured.places import BY_NAME, HOLDERS

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
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


MAX_DEPTH = 200  # levels of JSON
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
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
        value = msgspec.json.decode(source)
    except RecursionError as error:
        raise wrong(TOO_DEEP) from error
    except ValueError as error:
        raise wrong(f"not JSON: {error}") from error
    if is_deep(value):
        raise wrong(TOO_DEEP)
    return value


def is_deep(value: Any) -> bool:
    """Beyond what code that calls itself for each level can take."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [part for each in level if isinstance(each, dict | list)
                 for part in (each.values() if isinstance(each, dict) else each)]  # fmt: skip
    return any(isinstance(each, dict | list) for each in level)


def choices(source: str) -> list[str]:
    texts = loaded(source)
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise wrong("choices must be a list of texts, none of them empty")
    return texts


class Kept(Generic[K, V]):
    """What was made of texts that clients send again and again: the oldest are forgotten once the texts are longer
    together than a bound. Nothing is kept of a text that nothing can be made of. For several threads."""

    def __init__(self, make: Callable[[K], V], size: Callable[[K], int], most: int) -> None:
        """`size`: characters of a key; `most`: of all of them."""
        self._make, self._size, self._most = make, size, most
        self._found: OrderedDict[K, V] = OrderedDict()
        self._num_characters = 0
        self._lock = Lock()

    def __call__(self, key: K) -> V:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        made = self._make(key)
        with self._lock:
            if key not in self._found and self._size(key) <= self._most:
                self._found[key] = made
                self._num_characters += self._size(key)
                while self._num_characters > self._most:
                    self._num_characters -= self._size(self._found.popitem(last=False)[0])
        return made
