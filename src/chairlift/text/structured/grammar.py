"""From the shape that a request asks for to a grammar of the llguidance library, which makes token masks of it.

Always: the same shape gives the same grammar, so an engine can make it again; blanks are bounded, because a model that
may write blanks for ever sometimes does; what a grammar cannot hold an answer to is refused, never left out.
"""

import time
from collections.abc import Callable
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.panics import LibraryFailed, caught
from chairlift.text.structured.endless import is_endless
from chairlift.text.structured.faults import own_faults, why_endless
from chairlift.text.structured.lark import (
    either,
    escaped,
    expression,
    given,
    holds_given,
    json_value,
    lark_of,
    library_schema,
    literal,
)
from chairlift.text.structured.places import failing_place
from chairlift.text.structured.rules_depth import check_lark
from chairlift.text.structured.source import check_length, check_optional, choices, loaded, num_optional, wrong
from chairlift.text.structured.tags import tags_grammar
from chairlift.text.structured.vocabulary import byte_vocabulary

# Parser items of one mask; beyond them a grammar ends its request, not the engine's step. Measured with 49 thousand
# tokens on one core (x86-64). In rules that a client wrote, which may be ambiguous, an item costs the more the longer
# the answer is; shapes made here are wide, but their items stay cheap.
#     rules:  `e: e e | /[a-zA-Z ]/` takes 690 ms at 50,000 items, 13 ms at 10,000; three rules of all their pairs take
#             135 ms at 10,000, 18 ms at 4,000; SQL, C, JSON and Python need 2,000 at most, 1,800 alternatives 100
#     shapes: 200 optional properties need 20,000, a list of any of 100 objects 30,000: 4 ms
# More ambiguous rules, each inside of all others, are bounded by `rules_depth.MAX_MEETINGS` and by the time of masks
# (`runner/sampling/matchers.py`).
_MAX_ITEMS, _MAX_ITEMS_OF_RULES = 50_000, 4_000


_TOO_MANY = "Too many items"  # says the library
_EXPRESSION, _WHY = "regex parse error:", "error: "
_MAX_WHERE = 200  # characters
_MAX_MASK_S = 0.25  # of the thread's processor time, for the first one


def _limits(step_max_items: int) -> LLParserLimits:
    return LLParserLimits(
        initial_lexer_fuel=200_000, step_lexer_fuel=100_000, step_max_items=step_max_items, max_lexer_states=50_000,
        max_grammar_size=200_000, verbose_errors=False,
    )  # fmt: skip


LIMITS = _limits(_MAX_ITEMS)
_LIMITS_OF_RULES = _limits(_MAX_ITEMS_OF_RULES)


def grammar_of(structured: Structured) -> str:
    """Raises `InvalidRequest`, with the place inside the shape, for what is not even well formed."""
    check_length(structured.source)
    if structured.kind in _LARK:
        lark = _LARK[structured.kind](structured.source)
        check_lark(lark)
        return LLMatcher.grammar_from_lark(lark)
    return _MAKERS[structured.kind](structured.source)


def matcher_of(structured: Structured, vocabulary: LLTokenizer) -> LLMatcher:
    """For answers; its error says what it cannot hold to."""
    return _matcher(structured, grammar_of(structured), vocabulary)


def _matcher(structured: Structured, grammar: str, vocabulary: LLTokenizer) -> LLMatcher:
    return LLMatcher(vocabulary, grammar, log_level=0, limits=_LIMITS_OF_RULES if has_rules(structured) else LIMITS)


def has_rules(structured: Structured) -> bool:
    """Whether a client wrote rules in it, which may be ambiguous."""
    kind = structured.kind
    return kind == "grammar" or (kind in _LARK and holds_given(_LARK[kind](structured.source)))


def check(structured: Structured, vocabulary: Callable[[], LLTokenizer]) -> None:
    """Raises `InvalidRequest` for a shape that no answer can be held to. The vocabulary is asked for where the grammar
    names special tokens."""
    grammar = grammar_of(structured)
    is_wrong, messages = _validated(grammar)
    names_tokens = bool(messages) and not is_wrong
    if names_tokens:
        is_wrong, messages = _validated(grammar, vocabulary())
    if structured.kind == "json_schema":
        _check_schema(loaded(structured.source), messages[0] if is_wrong else "")
    elif is_wrong:
        raise wrong(messages[0] if structured.kind != "regex" else messages[0][messages[0].find(_EXPRESSION) :])
    elif structured.kind in _LARK and is_endless(_LARK[structured.kind](structured.source)):
        raise wrong("has no finite answer: it needs itself")
    may_be_dead = structured.kind in ("regex", *_LARK) or '"allOf"' in structured.source
    if may_be_dead and not names_tokens:
        _check_beginning(_matcher(structured, grammar, byte_vocabulary()))


def _check_schema(schema: Any, fault: str) -> None:
    """`fault`: of the library, which does not say where it lies."""
    found = (failing_place(schema, fault, _library_fault), fault) if fault else next(own_faults(schema), None)
    if found is not None:
        place, why = found
        raise wrong(f"at {place or '/'}: {why}")


def _check_beginning(matcher: LLMatcher) -> None:
    """Of an answer: something may come first, and what it is can be told in time."""
    began_s = time.thread_time()
    matcher.compute_bitmask()
    if time.thread_time() - began_s > _MAX_MASK_S or _TOO_MANY in matcher.get_error():
        why = "too many parts that may be left out, one behind the other, or ways to read one text"
        raise wrong(f"{why}: an answer could not even begin; say less of what may come, or write rules as terminals")
    if matcher.is_error():
        raise wrong("no text has this shape")


def json_schema_fault(schema: Any) -> str:
    """Why no answer can be held to this schema; empty where one can."""
    return _library_fault(schema) or next((why for _, why in own_faults(schema)), "") or why_endless(schema)


def _library_fault(schema: Any) -> str:
    try:
        is_wrong, messages = _validated(_of_schema(schema))
    except InvalidRequest as error:
        return error.message
    return messages[0] if is_wrong else ""


def regex_fault(pattern: str) -> str:
    """Why it is no expression; empty where it is one."""
    is_wrong, messages = _validated(LLMatcher.grammar_from_regex(pattern))
    return messages[0] if is_wrong else ""


def _validated(grammar: str, vocabulary: LLTokenizer | None = None) -> tuple[bool, list[str]]:
    """Whether it is wrong, and why or what is to be heeded."""
    try:
        with caught("grammar"):
            is_wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, vocabulary, limits=LIMITS)
    except LibraryFailed as error:
        return True, [str(error)]
    return is_wrong, [_in_one_line(message) for message in messages]


def _in_one_line(message: str) -> str:
    """Without the library's drawing of the place; of an expression, why it is none."""
    where, is_expression, drawn = message.partition(_EXPRESSION)
    if not is_expression:
        return message.partition("\n")[0]
    why = next((line.removeprefix(_WHY) for line in drawn.splitlines() if line.startswith(_WHY)), "")
    return f"{where[:_MAX_WHERE]}{_EXPRESSION} {why}"


def _of_schema(schema: Any) -> str:
    try:
        return LLMatcher.grammar_from_json_schema(library_schema(schema))
    except ValueError as error:
        raise wrong(f"not a JSON schema: {error}") from error


def _of_regex(pattern: str) -> str:
    check_optional([num_optional(pattern)])
    return LLMatcher.grammar_from_regex(pattern)


def _of_choice(source: str) -> str:
    return LLMatcher.grammar_from_regex("|".join(map(escaped, choices(source))))


# The kinds that are written in Lark.
_LARK: dict[str, Callable[[str], str]] = {
    "grammar": lark_of, "structural_tag": lambda source: tags_grammar(loaded(source)), "response": str,
}  # fmt: skip
_MAKERS: dict[str, Callable[[str], str]] = {
    "json_schema": lambda source: _of_schema(loaded(source)), "regex": _of_regex,
    "choice": _of_choice,
}  # fmt: skip


def nested(structured: Structured) -> str:
    """As a part of a larger grammar. Raises `InvalidRequest` for what is not well formed."""
    source = structured.source
    if structured.kind == "json_schema":
        return json_value(loaded(source))
    if structured.kind == "choice":
        return either([literal(text) for text in choices(source)])
    if structured.kind == "regex":
        return expression(source)
    if structured.kind == "structural_tag":
        return f"%lark {{\n{tags_grammar(loaded(source))}\n}}"
    return given(lark_of(source))
