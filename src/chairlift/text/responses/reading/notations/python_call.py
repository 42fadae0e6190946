"""Reads calls written in Python: `[f(a=1, b="x"), g()]`, or one a line without the list.

Always: arguments become one JSON object; a value goes out at its end.
"""

import json
import re

from chairlift.text.responses.reading.cursor import Cursor, Take, Waits
from chairlift.text.responses.reading.notations.call import Call
from chairlift.text.responses.reading.values import literal_json_of, parameter, types_of
from chairlift.text.responses.templates.template import PythonCall

_NAME = re.compile(r"[\w.-]")
_STOPS = re.compile(r"""[\[\](){},'"]""")
_IN_QUOTES = {quote: re.compile(rf"[{quote}\\]") for quote in "'\""}


def read_python_calls(cursor: Cursor, call: Call, notation: PythonCall) -> Waits[bool]:
    if notation.is_list and not (yield from cursor.literal("[")):
        return False
    while True:
        yield from cursor.blanks()
        if not (yield from _read_call(cursor, call)):
            return False
        call.end()
        if notation.is_list:
            yield from cursor.blanks()
            if not (yield from cursor.literal(",")):
                return (yield from cursor.literal("]"))
        else:
            yield from cursor.blanks()
            if not _NAME.fullmatch((yield from cursor.peek())):
                return True


def _read_call(cursor: Cursor, call: Call) -> Waits[bool]:
    name = yield from cursor.run(_NAME)
    if not (yield from cursor.literal("(")) or not call.begin(name):
        return False
    call.arguments("{")
    comma = ""
    while True:
        yield from cursor.blanks()
        if (yield from cursor.literal(")")):
            call.arguments("}")
            return True
        if not (yield from _argument(cursor, call, comma)):
            return False
        yield from cursor.literal(",")
        comma = ", "


def _argument(cursor: Cursor, call: Call, comma: str) -> Waits[bool]:
    key = yield from cursor.run(_NAME)
    yield from cursor.blanks()
    if not key or not (yield from cursor.literal("=")):
        return False
    types = types_of(parameter(call.parameters, key), call.parameters)
    parts: list[str] = []
    is_whole = yield from _literal(cursor, parts.append)
    call.arguments(f"{comma}{json.dumps(key, ensure_ascii=False)}: {literal_json_of(''.join(parts), types)}")
    return is_whole


def _literal(cursor: Cursor, take: Take) -> Waits[bool]:
    """A value up to the comma or bracket behind it."""
    depth = 0
    while True:
        char = yield from cursor.scan(_STOPS, take)
        if not char or (depth == 0 and char in ",)]}"):
            return bool(char)
        take(cursor.skip())
        depth += (char in "[({") - (char in "])}")
        if char in _IN_QUOTES and not (yield from _quoted(cursor, take, char)):
            return False


def _quoted(cursor: Cursor, take: Take, quote: str) -> Waits[bool]:
    while True:
        char = yield from cursor.scan(_IN_QUOTES[quote], take)
        if not char:
            return False
        take(cursor.skip())
        if char == quote:
            return True
        yield from cursor.peek()
        take(cursor.skip())
