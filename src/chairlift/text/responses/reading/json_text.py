"""JSON in a text that is still coming: where a string or a value ends, handed out as it comes."""

import json
import re
from collections.abc import Callable

from chairlift.text.responses.reading.cursor import Cursor, Take, Waits

_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r"""[^\w\s+\-.,:]""")  # a bracket, a quote, or what no JSON has there
_SCALAR = re.compile(r"[\w+\-.]")
_NOTHING: Take = lambda _: None  # noqa: E731


def read_string(cursor: Cursor, take: Take) -> Waits[bool]:
    """A string with its quotes; whether it ended."""
    take(cursor.skip())
    while True:
        char = yield from cursor.scan(_STRING, take)
        if not char:
            return False
        if char == '"':
            take(cursor.skip())
            return True
        yield from _escape(cursor, take)


def _escape(cursor: Cursor, take: Take) -> Waits[None]:
    backslash = cursor.skip()
    yield from cursor.peek()
    take(backslash + cursor.skip())


def read_value(cursor: Cursor, take: Take) -> Waits[bool]:
    """Any value; False: the text ended inside it, or what comes next is no JSON."""
    char = yield from cursor.peek()
    if char == '"':
        return (yield from read_string(cursor, take))
    if char and char in "{[":
        return (yield from _read_brackets(cursor, take))
    text = yield from cursor.run(_SCALAR)
    take(text)
    return bool(text)


def _read_brackets(cursor: Cursor, take: Take) -> Waits[bool]:
    depth = 0
    while True:
        char = yield from cursor.scan(_OUTSIDE, take)
        if char == '"':
            if not (yield from read_string(cursor, take)):
                return False
        elif char and char in "{[":
            take(cursor.skip())
            depth += 1
        elif char and char in "}]":
            take(cursor.skip())
            depth -= 1
            if depth == 0:
                return True
        else:
            return False


def held_string(cursor: Cursor) -> Waits[str | None]:
    """The text that a string means; None where there is none, or none that is well formed."""
    if (yield from cursor.peek()) != '"':
        return None
    parts: list[str] = []
    if not (yield from read_string(cursor, parts.append)):
        return None
    return string_of("".join(parts))


def string_of(text: str) -> str | None:
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def held_value(cursor: Cursor) -> Waits[str | None]:
    parts: list[str] = []
    return "".join(parts) if (yield from read_value(cursor, parts.append)) else None


def read_arguments(cursor: Cursor, take: Callable[[str], None]) -> Waits[bool]:
    """Arguments as a client gets them: an object as it comes; JSON inside a string without the string around it."""
    char = yield from cursor.peek()
    if char == "{":
        return (yield from read_value(cursor, take))
    text = yield from held_value(cursor)
    if text is None:
        return False
    inner = string_of(text) if char == '"' else text
    take("{}" if inner in ("", "null") else text if inner is None else inner)
    return True
