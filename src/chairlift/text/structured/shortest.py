"""The shortest text that a shape allows, and the fewest tokens that spell it: fewer are refused before anything runs.

Always: a schema that no finite text satisfies is refused, with its place.
"""

import json
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.grammar import LIMITS, grammar_of
from chairlift.text.structured.shortest_json import NoAnswer, Unknown, shortest_json
from chairlift.text.structured.shortest_match import shortest_match
from chairlift.text.tokenizer import Tokenizer


def shortest_text(structured: Structured) -> str | None:
    """None where it cannot be told. What comes out may be none that the grammar allows: `is_allowed` tells."""
    if structured.kind == "regex":
        return shortest_match(structured.source)
    if structured.kind == "choice":
        return min(json.loads(structured.source), key=len, default=None)
    if structured.kind != "json_schema":
        return None
    try:
        return shortest_json(json.loads(structured.source))
    except Unknown:
        return None
    except NoAnswer as error:
        raise InvalidRequest("structured", f"at {error.place or '/'}: {error}") from error


def is_allowed(structured: Structured, text: str) -> bool:
    matcher = LLMatcher(_bytes(), grammar_of(structured), log_level=0, limits=LIMITS)
    spelled = _bytes().tokenize_bytes(text.encode(errors="replace"))
    return not matcher.is_error() and matcher.try_consume_tokens(spelled) == len(spelled) and matcher.is_accepting()


@lru_cache
def _bytes() -> LLTokenizer:
    """A vocabulary of single bytes: whether a text is allowed does not depend on the model."""
    return LLTokenizer("byte")


class Spellings:
    """The tokens of a vocabulary by their bytes; made once for a model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        visible = (token for token in range(tokenizer.vocab_size) if token not in tokenizer.special_ids)
        self._known = {spelled for token in visible if (spelled := tokenizer.spelling[token])}
        self._longest = max(map(len, self._known), default=0)

    def num_tokens_of(self, text: str) -> int | None:
        """The fewest tokens that spell the text; None where none do."""
        spelled = text.encode(errors="replace")
        fewest: list[Any] = [0] + [None] * len(spelled)
        for end in range(1, len(spelled) + 1):
            starts = range(max(0, end - self._longest), end)
            counts = [fewest[at] + 1 for at in starts if fewest[at] is not None and spelled[at:end] in self._known]
            fewest[end] = min(counts, default=None)
        found: int | None = fewest[-1]
        return found
