"""Reads a name, a mark and arguments in JSON: `f[ARGS]{...}`. Blanks around the marks are free."""

import re

from chairlift.text.responses.reading.cursor import Cursor, Waits
from chairlift.text.responses.reading.json_text import read_arguments
from chairlift.text.responses.reading.notations.call import Call
from chairlift.text.responses.templates.template import NamedCall

_NAME = re.compile(r"[\w.-]")


def read_named_call(cursor: Cursor, call: Call, notation: NamedCall) -> Waits[bool]:
    if not (yield from _mark(cursor, notation.before)):
        return False
    name = yield from cursor.run(_NAME)
    if notation.id_mark and (yield from _mark(cursor, notation.id_mark)):
        yield from cursor.run(_NAME)
    if not (yield from _mark(cursor, notation.between)) or not call.begin(name):
        return False
    if not (yield from read_arguments(cursor, call.arguments)):
        return False
    return (yield from _mark(cursor, notation.after))


def _mark(cursor: Cursor, mark: str) -> Waits[bool]:
    yield from cursor.blanks()
    for word in mark.split():
        if not (yield from cursor.literal(word)):
            return False
        yield from cursor.blanks()
    return True
