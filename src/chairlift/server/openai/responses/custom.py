"""Custom tools, whose input is free text, as Codex's apply_patch.

Always: the model knows such a tool as a function with one text, `input`; clients get and send the bare text. A
regular expression is a pattern of that text; a Lark grammar is only described, as calls are JSON to most models.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.tools.tool import NAME, NAME_RULE

_INPUT = "input"
_HEAD = re.compile(rf'\s*\{{\s*"{_INPUT}"\s*:\s*"')
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_WHOLE = re.compile(r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|' + _PAIR + r")*")
_HALF = re.compile("[\ud800-\udfff]")
_MAX_HEAD, _MAX_ESCAPE = 256, 12  # characters
_SYNTAXES = ("lark", "regex")


def function_of(tool: Mapping[str, Any], place: str) -> tuple[dict[str, Any], bool]:
    """The tool as a function, and whether its input is held to its format."""
    name, about, given = tool.get("name"), tool.get("description"), tool.get("format")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidRequest(f"{place}.name", NAME_RULE)
    if about is not None and not isinstance(about, str):
        raise InvalidRequest(f"{place}.description", "must be a text")
    text: dict[str, Any] = {"type": "string"}
    syntax, definition = _format(given, f"{place}.format")
    if syntax == "regex":
        text["pattern"] = f"^(?:{definition})$"
    elif syntax == "lark":
        about = f"{about or ''}\n\nThe input follows this Lark grammar:\n{definition}".strip()
    parameters = {"type": "object", "properties": {_INPUT: text}, "required": [_INPUT], "additionalProperties": False}
    return {"name": name, "description": about or "", "parameters": parameters}, syntax != "lark"


def _format(given: Any, place: str) -> tuple[str | None, str]:
    if given is None or (isinstance(given, dict) and given.get("type") == "text"):
        return None, ""
    if not isinstance(given, dict) or given.get("type") != "grammar":
        raise InvalidRequest(f"{place}.type", 'must be "text" or "grammar"')
    if given.get("syntax") not in _SYNTAXES:
        raise InvalidRequest(
            f"{place}.syntax", f"must be {' or '.join(_SYNTAXES)}, got {str(given.get('syntax'))[:40]!r}"
        )
    if not isinstance(given.get("definition"), str):
        raise InvalidRequest(f"{place}.definition", "is required, and is text")
    return given["syntax"], given["definition"]


def arguments_of(text: str) -> str:
    return json.dumps({_INPUT: text}, ensure_ascii=False)


class InputText:
    """The input as the arguments of its call come."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._pieces: list[str] = []
        self._waiting = ""  # what is not read yet
        self._has_begun = self._is_over = False

    @property
    def text(self) -> str:
        return "".join(self._told)

    def add(self, piece: str) -> str:
        """What is new of the input."""
        self._pieces.append(piece)
        if self._is_over:
            return ""
        self._waiting += piece
        if not self._has_begun:
            head = _HEAD.match(self._waiting)
            if head is None:
                self._is_over = len(self._waiting) > _MAX_HEAD
                return ""
            self._has_begun, self._waiting = True, self._waiting[head.end() :]
        whole = _WHOLE.match(self._waiting)
        assert whole is not None  # it may be empty
        self._waiting = self._waiting[whole.end() :]
        self._is_over = self._waiting.startswith('"') or len(self._waiting) > _MAX_ESCAPE
        return self._new(json.loads(f'"{whole[0]}"', strict=False))

    def end(self) -> tuple[str, bool]:
        """The rest, and whether the call was whole. Other arguments than were asked for are the input as they stand."""
        raw = "".join(self._pieces)
        try:
            given = json.loads(raw, strict=False)
        except (ValueError, RecursionError):
            return "" if self._has_begun else self._new(raw), False
        text = given.get(_INPUT) if isinstance(given, dict) else None
        whole = _encodable(text) if isinstance(text, str) else raw
        return self._new(whole.removeprefix(self.text)), True

    def _new(self, text: str) -> str:
        text = _encodable(text)
        self._told.append(text)
        return text


def _encodable(text: str) -> str:
    """Without halves of characters, which JSON can name."""
    return text.encode(errors="surrogatepass").decode(errors="replace") if _HALF.search(text) else text
