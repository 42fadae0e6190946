"""Whether a grammar in Lark has no finite text, because every way through its rules comes back to one of them.

Always: what is not understood here counts as a text that ends, so that no grammar is refused without a reason. The time
it takes grows with the length of the grammar alone.
"""

import json
import re
from collections import defaultdict
from itertools import count

from chairlift.text.structured.faults import why_endless

_Rules = dict[str, list[list[str]]]  # by name: the ways to write one, each a row of names
_TOKEN = re.compile(
    r"""(?P<blank> \s+ | (?://|\#)[^\n]* | ->\s*\w+ | %(?:import|ignore)\b[^\n]* )
      | (?P<optional> [?*] | (?:\{|~)\s*0\s*(?:(?:,|\.\.)\s*\d*)?\s*\}? )
      | (?P<repeated> [+] | (?:\{|~)\s*[\d,.\s]+\}? )
      | (?P<text> "(?:\\.|[^"\\\n])*"i? | /(?:\\.|[^/\\\n])+/[a-z]* | <[^>\n]*> | \.\. )
      | (?P<block> % (?P<kind>\w+) \s* (?=\{) )
      | (?P<head> (?P<rule>[a-zA-Z_]\w*) (?:\.-?\d+)? (?:\[[^\[\]\n]*\])? \s* : (?!:) )
      | (?P<name> [a-zA-Z_]\w* )
      | (?P<sign> [|()\[\]}] )""",
    re.VERBOSE,
)
_TEXT = ""  # stands for the names of all that ends
_NEVER = "%never"  # of what has no rule and does not end


class _Unread(Exception):
    """Something that is not understood here."""


def is_endless(lark: str) -> bool:
    try:
        return _Reader(lark).is_endless()
    except (_Unread, RecursionError):
        return False


class _Reader:
    def __init__(self, lark: str) -> None:
        self._lark = lark
        self._at = 0

    def is_endless(self) -> bool:
        """Of the grammar that begins here; reads up to its end."""
        rules = self._rules()
        return "start" in rules and "start" not in _finite(rules)

    def _rules(self) -> _Rules:
        rules: _Rules = {}
        groups: list[str] = []  # that are open, inside of a rule
        names = (f"({number}" for number in count())
        while self._at < len(self._lark):
            token = _TOKEN.match(self._lark, self._at)
            if token is None or (token.lastgroup not in ("blank", "block", "head") and not groups and token[0] != "}"):
                raise _Unread
            self._at = token.end()
            match token.lastgroup, token[0]:
                case "head", _:
                    groups = [token["rule"]]
                    rules.setdefault(token["rule"], []).append([])
                case "block", _:
                    ends = self._block_ends(token["kind"])
                    if groups:
                        rules[groups[-1]][-1].append(_TEXT if ends else _NEVER)
                case ("name" | "text") as kind, said:
                    rules[groups[-1]][-1].append(said if kind == "name" else _TEXT)
                case "optional", _:
                    rules[groups[-1]][-1][-1:] = [_TEXT]
                case "sign", "|":
                    rules[groups[-1]].append([])
                case "sign", "(" | "[":
                    name = next(names)
                    rules[groups[-1]][-1].append(name)
                    rules[name] = [[]] if token[0] == "(" else [[], []]  # of which one stays empty
                    groups.append(name)
                case "sign", ")" | "]" if len(groups) > 1:
                    groups.pop()
                case "sign", "}":
                    break
        return rules

    def _block_ends(self, kind: str) -> bool:
        """Whether a block in braces has a finite text; reads it."""
        if kind == "lark":
            self._at += 1
            return not self.is_endless()
        try:
            value, self._at = json.JSONDecoder().raw_decode(self._lark, self._at)
        except ValueError as error:
            raise _Unread from error
        return kind != "json" or not why_endless(value)


def _finite(rules: _Rules) -> set[str]:
    """Rules with a finite text: each that is found may complete a row of others."""
    finite: set[str] = set()
    rows = [(name, {item for item in row if item in rules or item == _NEVER}) for name in rules for row in rules[name]]
    waiting = defaultdict(list)
    for row in rows:
        for item in row[1]:
            waiting[item].append(row)
    found = [name for name, needed in rows if not needed]
    while found:
        name = found.pop()
        if name in finite:
            continue
        finite.add(name)
        for owner, needed in waiting[name]:
            needed.discard(name)
            if not needed:
                found.append(owner)
    return finite
