"""Literals of Python as JSON text: strings of either quote, True, False and None, tuples as lists."""

import json
import re

_TOKEN = re.compile(
    r"""\s+|(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z_]\w*)|(?P<other>[-+]?[\d.][\w.+-]*|[\[\]{}(),:])""",
    re.DOTALL,
)
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_BRACKETS = {"(": "[", ")": "]"}
_ESCAPE = re.compile(r"\\(u[dD][89abAB]..\\u[dD][c-fC-F]..|x..|u....|U........|[0-7]{1,3}|.)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": "", "\\": "\\"} | {
    quote: quote for quote in "'\"/"
}


def literal_to_json(text: str) -> str | None:
    """None for what is no literal."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        part = _part(token) if token else None
        if token is None or part is None:
            return None
        if part in ("]", "}") and parts and parts[-1] == ",":
            parts.pop()
        if part:
            parts.append(part)
        at = token.end()
    return _whole("".join(parts))


def _part(token: re.Match[str]) -> str | None:
    if token["string"]:
        return json.dumps(_ESCAPE.sub(_unescaped, token["string"][1:-1]), ensure_ascii=False)
    if token["word"]:
        return _WORDS.get(token["word"])
    return _BRACKETS.get(token["other"] or "", token["other"] or "")


def _unescaped(escape: re.Match[str]) -> str:
    what = escape[1]
    if what in _PLAIN:
        return _PLAIN[what]
    try:
        if "\\" in what:  # a pair of halves, as JSON writes them
            return str(json.loads(f'"\\{what}"'))
        char = chr(int(what, 8)) if what.isdigit() else chr(int(what[1:], 16)) if what[0] in "xuU" else escape[0]
    except ValueError:
        return escape[0]
    return "\ufffd" if "\ud800" <= char <= "\udfff" else char


def _whole(text: str) -> str | None:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return text
