"""How calls are written: the notations that families of models use.

Reads `{"name": "f", "arguments": {...}}`: keys in any order, blanks anywhere.

Always: nothing is told of the call before its name is known; then the arguments go out as they come.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from chairlift.text.responses.reading.cursor import Cursor, Take, Waits, marks_of
from chairlift.text.responses.reading.json_text import held_string, held_value, read_arguments, read_value, string_of
from chairlift.text.responses.reading.sink import Sink
from chairlift.text.responses.reading.values import json_of, literal_json_of, parameter, types_of
from chairlift.text.responses.templates.template import JsonCall, NamedCall, PythonCall, TaggedCall
from chairlift.text.responses.tools.tool import Tool


class Call:
    """`is_bare`: no mark stands before the call, so only the name of a tool tells it from text."""

    def __init__(self, cursor: Cursor, sink: Sink, tools: Mapping[str, Tool], is_bare: bool) -> None:
        self._cursor, self._sink, self._tools = cursor, sink, tools
        self.is_bare = is_bare
        self.is_open = False
        self.num = 0
        self.parameters: Mapping[str, Any] = {}

    def begin(self, name: str) -> bool:
        """False where it is no call after all."""
        if self.is_open or not name or (self.is_bare and not self.num and name not in self._tools):
            return False
        self._cursor.forget()
        self._sink.begin(name)
        self.is_open, self.num = True, self.num + 1
        self.parameters = self._tools[name].parameters if name in self._tools else {}
        return True

    def arguments(self, text: str) -> None:
        self._sink.arguments(text)

    def end(self, is_whole: bool = True) -> None:
        if self.is_open:
            self._sink.end(is_whole)
        self.is_open = False


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


_NAMED = re.compile(r"[\w.-]")


def read_named_call(cursor: Cursor, call: Call, notation: NamedCall) -> Waits[bool]:
    """Reads a name, a mark and arguments in JSON: `f[ARGS]{...}`. Blanks around the marks are free."""
    if not (yield from _mark(cursor, notation.before)):
        return False
    name = yield from cursor.run(_NAMED)
    if notation.id_mark and (yield from _mark(cursor, notation.id_mark)):
        yield from cursor.run(_NAMED)
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


_TAGGED = re.compile(r"[\w.-]")


def read_tagged_call(cursor: Cursor, call: Call, notation: TaggedCall) -> Waits[bool]:
    """Reads a tag with the name around a tag for each argument: `<function=f><parameter=a>1</parameter></function>`.

    Always: arguments become one JSON object, by the types that the tool's schema gives them; strings go out as they
    come, other values at their end. One line break on either side of a value may belong to its tags.
    """
    yield from cursor.blanks()
    if not (yield from cursor.literal(notation.name.open)):
        return False
    name = yield from cursor.run(_TAGGED)
    yield from cursor.blanks()
    if not (yield from cursor.literal(notation.name.close.strip())) or not call.begin(name):
        return False
    call.arguments("{")
    is_first = True
    while True:
        yield from cursor.blanks()
        if not (yield from cursor.literal(notation.key.open)):
            break
        if not (yield from _tagged_argument(cursor, call, notation, "" if is_first else ", ")):
            return False
        is_first = False
    call.arguments("}")
    return (yield from cursor.literal(notation.close)) if notation.close else True


def _tagged_argument(cursor: Cursor, call: Call, notation: TaggedCall, comma: str) -> Waits[bool]:
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


_PYTHON_NAME = re.compile(r"[\w.-]")
_STOPS = re.compile(r"""[\[\](){},'"]""")
_IN_QUOTES = {quote: re.compile(rf"[{quote}\\]") for quote in "'\""}


def read_python_calls(cursor: Cursor, call: Call, notation: PythonCall) -> Waits[bool]:
    """Reads calls written in Python: `[f(a=1, b="x"), g()]`, or one a line without the list.

    Always: arguments become one JSON object; a value goes out at its end.
    """
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
            if not _PYTHON_NAME.fullmatch((yield from cursor.peek())):
                return True


def _read_call(cursor: Cursor, call: Call) -> Waits[bool]:
    name = yield from cursor.run(_PYTHON_NAME)
    if not (yield from cursor.literal("(")) or not call.begin(name):
        return False
    call.arguments("{")
    comma = ""
    while True:
        yield from cursor.blanks()
        if (yield from cursor.literal(")")):
            call.arguments("}")
            return True
        if not (yield from _python_argument(cursor, call, comma)):
            return False
        yield from cursor.literal(",")
        comma = ", "


def _python_argument(cursor: Cursor, call: Call, comma: str) -> Waits[bool]:
    key = yield from cursor.run(_PYTHON_NAME)
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
