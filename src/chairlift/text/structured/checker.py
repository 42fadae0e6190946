"""Whether answers can be held to a shape, told before a request is queued."""

from collections.abc import Sequence
from functools import cached_property, lru_cache

from llguidance import LLTokenizer

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.grammar import check
from chairlift.text.structured.vocabulary import grammar_vocabulary
from chairlift.text.tokenizer import Tokenizer

_KEPT = 256  # shapes that are known to be fine: clients send the same one again and again


class StructuredChecker:
    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_ids: Sequence[int]) -> None:
        self._tokenizer, self._vocab_size, self._end_ids = tokenizer, vocab_size, end_ids
        self._checked = lru_cache(maxsize=_KEPT)(self._check)

    def check(self, structured: Structured) -> None:
        """Raises `InvalidRequest` for a shape that no answer of this model can be held to."""
        self._checked(structured)

    def _check(self, structured: Structured) -> None:
        if not self._end_ids:
            raise InvalidRequest("structured", "the model names no end token, so an answer could not end")
        check(structured, lambda: self._vocabulary)

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        """Only grammars that name special tokens need it."""
        return grammar_vocabulary(self._tokenizer, self._vocab_size, self._end_ids)
