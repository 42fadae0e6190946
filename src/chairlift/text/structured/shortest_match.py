"""The shortest text that a regular expression matches, by Python's own parser of expressions."""

import re
import time
from collections.abc import Callable
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

Cost = Callable[[str], int]  # of a text: its length, or the tokens that it takes
MAX_LENGTH = 4096  # of what comes out
_MAX_PATTERN = 4 * MAX_LENGTH  # Python takes a third of a second over 100,000 characters
_CHARS = "a0A _-.:/x!\n\u00e9"  # tried where an expression says which are not allowed
_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    codes.CATEGORY_DIGIT: str.isdigit,
    codes.CATEGORY_NOT_DIGIT: lambda char: not char.isdigit(),
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    codes.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    codes.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


_MAX_SECONDS = 0.05  # of the thread's processor time, for one search


class Unknown(Exception):
    """What is shortest cannot be told."""


def limited(cost: Cost) -> Cost:
    """Raises `Unknown` once a search that begins now has taken too long."""
    until_s = time.thread_time() + _MAX_SECONDS

    def limited_cost(text: str) -> int:
        if time.thread_time() > until_s:
            raise Unknown
        return cost(text) if text else 0

    return limited_cost


def shortest_match(pattern: str, cost: Cost = len) -> str | None:
    """Of several, the one of least cost. None where it cannot be told: a very long one, look-around, references, or a
    dialect that Python does not read."""
    if len(pattern) > _MAX_PATTERN:
        return None
    try:
        return _sequence(_parser.parse(pattern), cost)
    except (re.error, Unknown, RecursionError, OverflowError):
        return None


def _sequence(parts: Any, cost: Cost) -> str:
    text = ""
    for code, value in parts:
        text += _part(code, value, cost)
        if len(text) > MAX_LENGTH:
            raise Unknown
    return text


def _part(code: Any, value: Any, cost: Cost) -> str:
    if code == codes.LITERAL:
        return chr(value)
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        least: int = value[0]
        inside = value[2]
        once = _sequence(inside, cost) if least else ""
        if least * len(once) > MAX_LENGTH:
            raise Unknown
        return once * least
    if code == codes.SUBPATTERN:
        return _sequence(value[-1], cost)
    if code == codes.BRANCH:
        return min((_sequence(each, cost) for each in value[1]), key=cost)
    if code == codes.ANY:
        return "a"
    if code == codes.NOT_LITERAL:
        return next(char for char in _CHARS if char != chr(value))
    if code == codes.IN:
        return _member(value)
    if code == codes.AT and value in (codes.AT_BEGINNING, codes.AT_END, codes.AT_BEGINNING_STRING, codes.AT_END_STRING):
        return ""
    raise Unknown


def _member(members: Any) -> str:
    is_negated = members[0][0] == codes.NEGATE
    members = members[1:] if is_negated else members
    firsts = [chr(value if code == codes.LITERAL else value[0]) for code, value in members if code != codes.CATEGORY]
    for char in _CHARS if is_negated else (*firsts, *_CHARS):
        if any(_holds(code, value, char) for code, value in members) != is_negated:
            return char
    raise Unknown


def _holds(code: Any, value: Any, char: str) -> bool:
    if code == codes.LITERAL:
        return char == chr(value)
    if code == codes.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    return _CATEGORIES[value](char) if value in _CATEGORIES else False
