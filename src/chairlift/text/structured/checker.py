"""Whether answers can be held to a shape, told before a request is queued."""

from collections.abc import Sequence
from functools import cached_property

from llguidance import LLTokenizer

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.structured.grammar import check
from chairlift.text.structured.shortest import Spellings, is_allowed, shortest_text
from chairlift.text.structured.source import Kept
from chairlift.text.structured.vocabulary import grammar_vocabulary
from chairlift.text.tokenizer import Tokenizer

_KEPT = 4 * 2**20  # characters of shapes that are known to be fine
_SLACK = 2  # tokens: another text of the shape may need fewer than the shortest


class StructuredChecker:
    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_ids: Sequence[int]) -> None:
        self._tokenizer, self._vocab_size, self._end_ids = tokenizer, vocab_size, end_ids
        self._checked = Kept[Structured, str | None](self._check, lambda structured: len(structured.source), _KEPT)

    def check(self, structured: Structured, max_tokens: int | None = None) -> None:
        """Raises `InvalidRequest` for a shape that no answer of this model can be held to, or none so short."""
        shortest = self._checked(structured)
        # A token spells a byte at least, so most answers need no count.
        if max_tokens is None or shortest is None or len(shortest.encode(errors="replace")) <= max_tokens + _SLACK:
            return
        if self._num_tokens(shortest) <= max_tokens + _SLACK:
            return
        fewest = self._spellings.num_tokens_of(shortest)
        if fewest is not None and fewest > max_tokens + _SLACK and is_allowed(structured, shortest):
            why = f"is too few: the shortest answer of this shape takes about {fewest} tokens"
            raise InvalidRequest("max_tokens", f"{max_tokens} {why}")

    def _check(self, structured: Structured) -> str | None:
        """The shortest text of the shape; None where it cannot be told."""
        if not self._end_ids:
            raise InvalidRequest("structured_outputs", "the model names no end token, so an answer could not end")
        check(structured, lambda: self._vocabulary)
        return shortest_text(structured, self._num_tokens)

    def _num_tokens(self, text: str) -> int:
        """As the tokenizer spells it, which is quick to find; there may be ways with fewer."""
        return len(self._tokenizer.encode(text, add_special=False))

    @cached_property
    def _spellings(self) -> Spellings:
        return Spellings(self._tokenizer)

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        """Only grammars that name special tokens need it."""
        return grammar_vocabulary(self._tokenizer, self._vocab_size, self._end_ids)
