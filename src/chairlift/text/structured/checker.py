"""Whether answers can be held to a shape, told before a request is queued."""

from collections.abc import Sequence
from functools import cached_property, lru_cache

from llguidance import LLTokenizer

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.grammar import check
from chairlift.text.structured.shortest import Spellings, shortest_text
from chairlift.text.structured.vocabulary import grammar_vocabulary
from chairlift.text.tokenizer import Tokenizer

_KEPT = 256  # shapes that are known to be fine: clients send the same one again and again
_SLACK = 2  # tokens: a longer text may be spelled by fewer than the shortest


class StructuredChecker:
    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_ids: Sequence[int]) -> None:
        self._tokenizer, self._vocab_size, self._end_ids = tokenizer, vocab_size, end_ids
        self._shortest = lru_cache(maxsize=_KEPT)(self._checked)

    def check(self, structured: Structured, max_tokens: int | None) -> None:
        """Raises `InvalidRequest` for a shape that no answer of this model, of so many tokens, can be held to."""
        shortest = self._shortest(structured)
        if shortest is None or max_tokens is None or max_tokens >= len(shortest.encode()):
            return
        least = self._spellings.num_tokens_of(shortest)
        if least is not None and max_tokens + _SLACK < least:
            why = f"{max_tokens} are too few: the shortest answer of this shape has {least} tokens"
            raise InvalidRequest("max_tokens", why)

    def _checked(self, structured: Structured) -> str | None:
        """The shortest text of the shape, where it can be told."""
        if not self._end_ids:
            raise InvalidRequest("structured", "the model names no end token, so an answer could not end")
        check(structured, lambda: self._vocabulary)
        return shortest_text(structured)

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        """Only grammars that name special tokens need it."""
        return grammar_vocabulary(self._tokenizer, self._vocab_size, self._end_ids)

    @cached_property
    def _spellings(self) -> Spellings:
        return Spellings(self._tokenizer)
