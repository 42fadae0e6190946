"""Reads a tag with the name around a tag for each argument: `<function=f><parameter=a>1</parameter></function>`.

Always: arguments become one JSON object, by the types that the tool's schema gives them; strings go out as they come,
other values at their end. One line break on either side of a value may belong to its tags.
"""

import json
import re

from chairlift.text.responses.reading.cursor import Cursor, Waits, marks_of
from chairlift.text.responses.reading.json_text import read_value
from chairlift.text.responses.reading.notations.call import Call
from chairlift.text.responses.reading.values import json_of, parameter, types_of
from chairlift.text.responses.templates.template import TaggedCall

_NAME = re.compile(r"[\w.-]")


def read_tagged_call(cursor: Cursor, call: Call, notation: TaggedCall) -> Waits[bool]:
    yield from cursor.blanks()
    if not (yield from cursor.literal(notation.name.open)):
        return False
    name = yield from cursor.run(_NAME)
    yield from cursor.blanks()
    if not (yield from cursor.literal(notation.name.close.strip())) or not call.begin(name):
        return False
    call.arguments("{")
    is_first = True
    while True:
        yield from cursor.blanks()
        if not (yield from cursor.literal(notation.key.open)):
            break
        if not (yield from _argument(cursor, call, notation, "" if is_first else ", ")):
            return False
        is_first = False
    call.arguments("}")
    return (yield from cursor.literal(notation.close)) if notation.close else True


def _argument(cursor: Cursor, call: Call, notation: TaggedCall, comma: str) -> Waits[bool]:
    parts: list[str] = []
    if not (yield from cursor.until(marks_of((notation.key.close,)), parts.append)):
        call.arguments("".join(parts))
        return False
    key = "".join(parts).strip()
    if notation.value.open:
        yield from cursor.blanks()
        if not (yield from cursor.literal(notation.value.open)):
            return False
    types = types_of(parameter(call.parameters, key), call.parameters)
    call.arguments(f"{comma}{json.dumps(key, ensure_ascii=False)}: ")
    return (yield from _value(cursor, call, notation, types))


def _value(cursor: Cursor, call: Call, notation: TaggedCall, types: tuple[str, ...]) -> Waits[bool]:
    close = notation.value.close
    ends = marks_of((close, "\n" + close) if notation.has_lines else (close,))
    if notation.has_lines:
        yield from cursor.literal("\n")
    if types == ("string",):
        call.arguments('"')
        found = yield from cursor.until(ends, lambda text: call.arguments(_escaped(text)))
        call.arguments('"')
        return bool(found)
    parts: list[str] = []
    if "string" not in types and (yield from cursor.peek()) in ("{", "["):
        yield from read_value(cursor, parts.append)  # in whose strings the close may stand
    found = yield from cursor.until(ends, parts.append)
    call.arguments(json_of("".join(parts), types))
    return bool(found)


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
