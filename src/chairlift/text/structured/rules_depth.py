"""How deep the rules of a grammar lead, in Lark or GBNF, with groups and what is nested in them, and how many meet.

Always: text is split as the grammar library does it, in one pass. Where a rule may begin that is not understood here,
or a text has no end, all rules count as one inside of another.
"""

import json
import re
from collections import Counter

from chairlift.text.structured.depth import MAX_RULES, Links
from chairlift.text.structured.schema_depth import check_depth
from chairlift.text.structured.source import TOO_DEEP, check_optional, num_optional, wrong

# Pairs of a place that names a rule and a name in that rule: what a parser may try wherever a rule ends. SQL has some
# thousands. Eight rules of all their pairs have 131,000, and one byte of their text takes 100 ms; twelve take seconds.
MAX_MEETINGS = 100_000
_NAME = "_?(?:[a-z][_a-z0-9-]*|[A-Z][_A-Z0-9-]*)"
_LARK = re.compile(
    rf"""(?P<text> \s+ | (?://|\#)[^\n]* | "(?:\\.|[^"\\\n])*"i? | /(?:\\.|[^/\\])+/[imslux]* | <[^<>\s]+> | -> | :: )
      | (?P<lark> %lark \s* \{{ )
      | (?P<block> %(?P<kind>json|regex|llguidance) \s* (?=\{{) )
      | (?P<statement> %(?:ignore|import|declare) )
      | (?P<head> (?P<rule>{_NAME}) (?:::\w+)?
            (?:\[ (?: "(?:\\.|[^"\\\n])*" | /(?:\\.|[^/\\])+/ | [^\[\]"/:] )* \])? \s* : (?!:) )
      | (?P<name> {_NAME} )
      | (?P<opening> [(\[{{] ) | (?P<closing> [)\]] ) | (?P<brace> \}} )
      | (?P<unclear> : | "(?:\\.|[^"\\\n])*+ | /(?:\\.|[^/\\])*+ )
      | (?P<other> . )""",
    re.VERBOSE,
)
_GBNF = re.compile(
    r"""(?P<text> \s+ | \#[^\n]* | "(?:\\.|[^"\\])*" | \[(?:\\.|[^\]\\])*\] )
      | (?P<unclear> "(?:\\.|[^"\\])*+ | \[(?:\\.|[^\]\\])*+ )
      | (?P<head> (?P<rule>[\w-]+) \s* ::= )
      | (?P<name> [\w-]+ )
      | (?P<opening> \( ) | (?P<closing> \) )
      | (?P<other> . )""",
    re.VERBOSE | re.DOTALL,
)
_Name = tuple[int, str]  # of a rule: the grammar that it is in, and its name there


def check_lark(lark: str) -> None:
    """Raises `InvalidRequest`."""
    reader = _checked(lark, _LARK)
    links = reader.links
    looped = next((name for circle in links.circles() for _, name in circle if name.isupper()), None)
    if looped is not None:
        raise wrong(f"the terminal {looped} needs itself")
    check_optional(reader.optional())


def check_gbnf(gbnf: str) -> None:
    _checked(gbnf, _GBNF)


def _checked(source: str, tokens: re.Pattern[str]) -> "_Reader":
    reader = _Reader(source, tokens)
    reader.read()
    links = reader.links
    depth = links.depth() if reader.is_clear else sum(links.levels.values())
    if depth > MAX_RULES:
        why = f"rules and groups lead {depth} deep, one inside of another, and {MAX_RULES} are the most"
        raise wrong(f"{why}; refer to fewer, or write rules where they are used")
    num_meetings = sum(reader.inside[name] * uses for name, uses in reader.uses.items())
    if num_meetings > MAX_MEETINGS:
        raise wrong(f"rules that name one another meet in {num_meetings} ways, and {MAX_MEETINGS} are the most")
    return reader


class _Reader:
    def __init__(self, source: str, tokens: re.Pattern[str]) -> None:
        self._source, self._tokens = source, tokens
        self.links = Links[_Name]()
        self.uses: Counter[_Name] = Counter()  # places that name a rule
        self.inside: Counter[_Name] = Counter()  # names in a rule
        self.is_clear = True  # each beginning of a rule was understood
        # Parts that may be left out: of each expression in a rule, and of each rule or terminal itself.
        self._in_expressions: list[int] = []
        self._in_rules = Counter[_Name]()
        self._at = 0
        self._num_grammars = 0
        self._owner: _Name = (0, "")
        self._level = 1  # in the rule
        self._outside: list[tuple[_Name, int]] = []  # rules that hold the grammar

    def read(self) -> None:
        while (token := self._tokens.match(self._source, self._at)) is not None:
            self._at = token.end()
            match token.lastgroup:
                case "text" if token[0].startswith("/") and not token[0].startswith("//"):
                    self._count(num_optional(token[0]), is_expression=True)
                case "other" if token[0] in "?*~":
                    self._count(1)
                case "head" | "statement":
                    self._begin((self._owner[0], "" if token.lastgroup == "statement" else token["rule"]))
                case "name":
                    name = (self._owner[0], token[0])
                    self.links.add(self._owner, self._level, name)
                    self.uses[name] += 1
                    self.inside[self._owner] += 1
                case "lark":
                    self._num_grammars += 1
                    self.links.add(self._owner, self._level, (self._num_grammars, "start"))
                    self._outside.append((self._owner, self._level))
                    self._begin((self._num_grammars, ""))
                case "brace" if self._level == 1 and self._outside:
                    self._owner, self._level = self._outside.pop()
                case "opening" | "closing" | "brace":
                    self._count(int(token[0] == "{"))
                    self._level = max(self._level + (1 if token.lastgroup == "opening" else -1), 1)
                    self.links.add(self._owner, self._level)
                case "block":
                    self._block(token["kind"])
                case "unclear":
                    self.is_clear = False

    def _count(self, num: int, is_expression: bool = False) -> None:
        if is_expression and not self._owner[1].isupper():
            self._in_expressions.append(num)
        else:
            self._in_rules[self._owner] += num

    def optional(self) -> list[int]:
        """Parts that may be left out: of each expression, each rule, and each terminal with those that it names."""
        of_terminals = self.links.sums(self._in_rules, lambda name: name[1].isupper())
        of_rules = [num for name, num in self._in_rules.items() if not name[1].isupper()]
        return [*self._in_expressions, *of_rules, *of_terminals]

    def _begin(self, owner: _Name) -> None:
        self._owner, self._level = owner, 1
        self.links.add(owner, 1)

    def _block(self, kind: str) -> None:
        try:
            value, self._at = json.JSONDecoder().raw_decode(self._source, self._at)
        except RecursionError as error:
            raise wrong(TOO_DEEP) from error
        except ValueError:  # the library reads no more of it
            return
        if kind == "json":
            check_depth(value)
