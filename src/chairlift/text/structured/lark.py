"""Writes grammars in the Lark dialect of llguidance: literals, expressions, schemas, and rules by name.

Always: what is written means the text it was given, whatever signs it holds. A special token is written by its id, so
that no text can stand for it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from llguidance.gbnf_to_lark import gbnf_to_lark

from chairlift.text.structured.bounded import bounded
from chairlift.text.structured.rules_depth import check_gbnf
from chairlift.text.structured.schema_depth import check_depth
from chairlift.text.structured.shared import with_shared_parts
from chairlift.text.structured.source import TOO_DEEP, check_length, constraints_of, wrong

ANY_TEXT = r"(?s:.*)"
_GIVEN = "// given"  # at the head of rules that a client wrote, where they are a part
# One pass over any text: `\s` in front would begin anew at each of many line breaks, and read all that follow.
_GBNF = re.compile(r"^[^\S\n]*[\w-]+\s*::=", re.MULTILINE)
_META = re.compile(r"[\\.+*?()|\[\]{}^$#&~/\n\t\r-]")
_SIGNS = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
# What a schema says of itself in "x-guidance" gives way to these.
_BLANKS = r"[ \t]{0,2}|\n(?: {0,24}|\t{0,8})"  # between the parts of JSON: none, a few, or a line break with its indent
JSON_OPTIONS: dict[str, Any] = {
    "item_separator": ",", "key_separator": ":", "whitespace_flexible": True, "whitespace_pattern": _BLANKS,
    "coerce_one_of": False, "lenient": False, "json_allow_general_unicode_escapes": True,
}  # fmt: skip


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def escaped(text: str) -> str:
    """The text inside an expression."""
    return _META.sub(lambda found: _SIGNS.get(found[0], f"\\{found[0]}"), text)


def expression(pattern: str) -> str:
    """A regular expression between slashes; two alone would begin a comment."""
    slashes = re.compile(r"\\.|/|\n", re.DOTALL)
    return "/" + slashes.sub(lambda found: {"/": r"\/", "\n": r"\n"}.get(found[0], found[0]), pattern or "(?:)") + "/"


def json_value(schema: Any) -> str:
    """A value that a JSON schema allows."""
    return f"%json {library_schema(schema)}"


def library_schema(schema: Any) -> str:
    """A schema in JSON as the library takes it: an object, where `true` means any value and `false` none."""
    schema = {} if schema is True else {"enum": []} if schema is False else schema
    if not isinstance(schema, dict):
        raise wrong(f"not a JSON schema: it is an object, true or false, got {type(schema).__name__}")
    try:
        said = constraints_of(schema)
        check_length(msgspec.json.encode(said).decode())
        made = with_shared_parts(bounded(said))
        check_depth(made)
        return msgspec.json.encode({**made, "x-guidance": JSON_OPTIONS}).decode()
    except RecursionError as error:
        raise wrong(TOO_DEEP) from error
    except ValueError as error:
        raise wrong(f"not a JSON schema: {error}") from error


def given(lark: str) -> str:
    """A client's grammar as a part of another, which `holds_given` finds there."""
    return f"%lark {{\n{_GIVEN}\n{lark}\n}}"


def holds_given(grammar: str) -> bool:
    return _GIVEN in grammar


def either(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"


def lark_of(source: str) -> str:
    """A grammar in Lark, of one in Lark or GBNF."""
    if not _GBNF.search(source):
        return source
    check_gbnf(source)
    try:
        lark = gbnf_to_lark(source)
    except Exception as error:  # of the library's translator, which raises what it meets
        raise wrong(f"not a grammar in GBNF: {error}") from error
    return "\n".join(line for line in lark.splitlines() if not line.startswith("%llguidance"))


class Rules:
    """Rules of a grammar as they are added; `special`: ids of special tokens by their texts."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = {text: token for text, token in special.items() if text}
        ordered = sorted(self._special, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, ordered))})") if ordered else re.compile(r"(?!)")
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}  # of rules that were given none, by what they say

    def begins_special(self, text: str) -> bool:
        return self._split.match(text) is not None

    def text(self, text: str, blanks: str = "") -> str:
        """A text in which special tokens may stand; empty for an empty one. `blanks`: an expression for what may come
        before it, in one piece with it: what else may come there is often told apart only behind the blanks."""
        parts = [part for part in self._split.split(text) if part]
        written = [f"<[{self._special[part]}]>" if part in self._special else literal(part) for part in parts]
        if blanks and parts and parts[0] in self._special:
            written.insert(0, expression(blanks))
        elif blanks and parts:
            written[0] = expression(blanks + escaped(parts[0]))
        return " ".join(written)

    def free(self) -> str:
        """Any text, without special tokens."""
        return self.rule(expression(ANY_TEXT))

    def until(self, mark: str, before: str = ANY_TEXT) -> str:
        """Text up to the first mark, and the mark."""
        if self.begins_special(mark):
            return f"{self.rule(expression(before))} {self.text(mark)}"
        return self.lazy(before + escaped(mark))

    def at_most(self, num_tokens: int, mark: str) -> str:
        """Text of so many tokens at most up to the first mark, and the mark, which is forced then."""
        limit = f"max_tokens={num_tokens}"
        cut = self.rule(expression(ANY_TEXT), limit)
        if self.begins_special(mark):
            return f"{cut} {self.text(mark)}"
        # The order counts: a text that is cut is taken for the first of both.
        whole = self.rule(expression(ANY_TEXT + escaped(mark)), f"lazy,{limit}")
        return f"({cut} {self.text(mark)} | {whole})"

    def lazy(self, pattern: str) -> str:
        """Ends as soon as the expression fits, and goes before all that could go on."""
        return self.rule(expression(pattern), "lazy")

    def rule(self, body: str, options: str = "") -> str:
        """A rule of its own, which is the same for the same body."""
        said = f"[{options}]: {body}" if options else f": {body}"
        if said not in self._names:
            self._names[said] = name = f"r{len(self._names)}"
            self._rules[name] = said
        return self._names[said]

    def terminal(self, pattern: str) -> str:
        """As `rule`, of expressions that may be joined by `&` and `~`."""
        said = f": {pattern}"
        if (key := f"terminal{said}") not in self._names:
            self._names[key] = name = f"T{len(self._names)}"
            self._rules[name] = said
        return self._names[key]

    def shared(self, key: str, make: Callable[[], str]) -> str:
        """A rule of its own, which is the same for the same key, and may hold itself."""
        if key not in self._names:
            self._names[key] = name = f"r{len(self._names)}"
            self._rules[name] = f": {make()}"
        return self._names[key]

    def in_order(self, members: Sequence[tuple[str, bool]], comma: str, close: str) -> str:
        """Members in their order, each with whether it must be there, and the close."""
        rest, first = close, [close]  # `rest`: once one was written
        for one, must in reversed(members):
            is_first = f"{one} {rest}"
            first = [is_first] if must else [is_first, *first]
            rest = self.rule(f"{comma} {one} {rest}" if must else f"({comma} {one})? {rest}")
        return self.rule(either(first))

    def grammar(self, start: str) -> str:
        return "\n".join((f"start: {start}", *(f"{name}{said}" for name, said in self._rules.items()))) + "\n"
