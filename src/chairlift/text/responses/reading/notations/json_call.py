"""Reads `{"name": "f", "arguments": {...}}`: keys in any order, blanks anywhere.

Always: nothing is told of the call before its name is known; then the arguments go out as they come.
"""

from chairlift.text.responses.reading.cursor import Cursor, Waits
from chairlift.text.responses.reading.json_text import held_string, held_value, read_arguments, string_of
from chairlift.text.responses.reading.notations.call import Call
from chairlift.text.responses.templates.template import JsonCall

_ARGUMENTS = ("arguments", "parameters")


def read_json_calls(cursor: Cursor, call: Call, notation: JsonCall) -> Waits[bool]:
    """One object, or a list of them; False: what comes is not well formed, or the text ended inside."""
    if not notation.is_list or not (yield from cursor.literal("[")):
        return (yield from _read_object(cursor, call))
    while True:
        yield from cursor.blanks()
        if not (yield from _read_object(cursor, call)):
            return False
        call.end()
        yield from cursor.blanks()
        if not (yield from cursor.literal(",")):
            return (yield from cursor.literal("]"))


def _read_object(cursor: Cursor, call: Call) -> Waits[bool]:
    if not (yield from cursor.literal("{")):
        return False
    arguments: str | None = None  # that came before the name
    while True:
        yield from cursor.blanks()
        key = yield from held_string(cursor)
        yield from cursor.blanks()
        if key is None or not (yield from cursor.literal(":")):
            return False
        yield from cursor.blanks()
        if call.is_bare and not call.is_open and key not in ("name", "type"):
            return False  # some other JSON
        if key == "name":
            name = yield from held_string(cursor)
            if name is None or not call.begin(name):
                return False
            call.arguments(arguments or "")
        elif key in _ARGUMENTS and call.is_open:
            if not (yield from read_arguments(cursor, call.arguments)):
                return False
        else:
            value = yield from held_value(cursor)
            if value is None or (call.is_bare and not call.is_open and value != '"function"'):
                return False
            arguments = _unquoted(value) if key in _ARGUMENTS else arguments
        yield from cursor.blanks()
        if not (yield from cursor.literal(",")):
            return (yield from cursor.literal("}")) and call.is_open


def _unquoted(value: str) -> str:
    inner = string_of(value) if value.startswith('"') else value
    return "" if inner == "null" else inner or ""
