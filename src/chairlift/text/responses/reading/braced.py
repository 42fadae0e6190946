"""Reads `f{a:1,b:<|"|>x<|"|>}`: like JSON, with bare keys and a mark of its own around strings.

Always: what goes out of a whole call is JSON; strings go out as they come, other values at their end. Keys and strings
in the quotes of JSON are taken too.
"""

import json
import re

from chairlift.text.responses.reading.cursor import Cursor, Waits, marks_of
from chairlift.text.responses.reading.json_text import held_string, read_string
from chairlift.text.responses.reading.notations import Call
from chairlift.text.responses.reading.values import json_of, parameter, types_of
from chairlift.text.responses.templates.template import BracedCall

_NAME = re.compile(r"[\w.-]")
_KEY = re.compile(r"[^\s:,{}\[\]<]")
_STOPS = re.compile(r"[,}\]<]")
_CLOSES = {"{": "}", "[": "]"}
_ANY = types_of({}, {})


def read_braced_call(cursor: Cursor, call: Call, notation: BracedCall) -> Waits[bool]:
    name = yield from cursor.run(_NAME)
    yield from cursor.blanks()
    if (yield from cursor.peek()) != "{" or not call.begin(name):
        return False
    closes: list[str] = []  # of the brackets that are open; not by recursion, as a model may open any number
    types = _ANY  # what the schema wants; below the arguments themselves, anything
    while True:
        yield from cursor.blanks()
        is_first = (yield from cursor.peek()) in _CLOSES
        if is_first:
            bracket = cursor.skip()
            call.arguments(bracket)
            closes.append(_CLOSES[bracket])
        elif not (yield from _scalar(cursor, call, notation.quote, types)):
            return False
        while closes and (yield from _ends(cursor, call, closes[-1])):
            closes.pop()
            is_first = False
        if not closes:
            return True
        if not is_first:
            if not (yield from cursor.literal(",")):
                return False
            call.arguments(", ")
        types = _ANY
        if closes[-1] == "}":
            key = yield from _key(cursor, notation.quote)
            if key is None:
                return False
            call.arguments(f"{json.dumps(key, ensure_ascii=False)}: ")
            types = _ANY if closes[1:] else types_of(parameter(call.parameters, key), call.parameters)


def _ends(cursor: Cursor, call: Call, bracket: str) -> Waits[bool]:
    yield from cursor.blanks()
    if not (yield from cursor.literal(bracket)):
        return False
    call.arguments(bracket)
    return True


def _key(cursor: Cursor, quote: str) -> Waits[str | None]:
    """A key and the colon behind it."""
    yield from cursor.blanks()
    if (yield from cursor.peek()) == '"':
        key = yield from held_string(cursor)
    elif (yield from cursor.literal(quote)):
        parts: list[str] = []
        found = yield from cursor.until(marks_of((quote,)), parts.append)
        key = "".join(parts) if found else None
    else:
        key = (yield from cursor.run(_KEY)) or None
    yield from cursor.blanks()
    return key if (yield from cursor.literal(":")) else None


def _scalar(cursor: Cursor, call: Call, quote: str, types: tuple[str, ...]) -> Waits[bool]:
    if (yield from cursor.literal(quote)):
        return (yield from _text(cursor, call, quote, types))
    if (yield from cursor.peek()) == '"':
        return (yield from read_string(cursor, call.arguments))
    parts: list[str] = []
    is_whole = yield from cursor.scan(_STOPS, parts.append)
    text = "".join(parts).strip()
    call.arguments(json_of(text, types) if text else "")
    return bool(is_whole and text)


def _text(cursor: Cursor, call: Call, quote: str, types: tuple[str, ...]) -> Waits[bool]:
    """A string; where the schema wants none, it may mean another value."""
    ends = marks_of((quote,))
    if "string" not in types:
        parts: list[str] = []
        found = yield from cursor.until(ends, parts.append)
        call.arguments(json_of("".join(parts), types))
        return bool(found)
    call.arguments('"')
    found = yield from cursor.until(ends, lambda text: call.arguments(json.dumps(text, ensure_ascii=False)[1:-1]))
    call.arguments('"')
    return bool(found)
