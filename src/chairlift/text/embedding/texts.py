"""Texts as the inputs of a model that makes vectors or scores: prompts before them, tokens around them, their length.

Always: an input is never longer than the limit. One that would be is refused, unless the client asks for it to be cut.
Knows nothing of HTTP.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chairlift.core.errors import ContextFull, InvalidRequest
from chairlift.models.embedding.declared import EmbeddingConfig
from chairlift.text.embedding.framing import Framing, framing_of
from chairlift.text.tokenizer import Tokenizer

TRUNCATE = "truncate_prompt_tokens"
TOO_MANY = f"are too many for an input; shorten it, or set {TRUNCATE} to -1 to cut it"
_QUERY, _DOCUMENT = ("query",), ("document", "passage", "corpus")
# The form that Qwen's rerankers were trained with.
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_FORM = "<Instruct>: {}\n<Query>: {}\n<Document>: "


class Framed(NamedTuple):
    tokens: list[int]
    second_at: int = 0


@dataclass(frozen=True, slots=True)
class EmbeddingTexts:
    config: EmbeddingConfig
    framing: Framing

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: EmbeddingConfig) -> "EmbeddingTexts":
        if config.answer is not None:
            before, after = (tuple(tokenizer.encode(text, add_special=False)) for text in (_BEFORE, _AFTER))
            return cls(config, Framing(before, after))
        return cls(config, framing_of(tokenizer))

    @property
    def takes_pairs_as_text(self) -> bool:
        """A pair becomes one text: the document behind `before_document`."""
        return self.config.answer is not None

    def prompted(self, text: str, prompt_name: str | None = None) -> str:
        prompts, name = dict(self.config.prompts), prompt_name or self.config.default_prompt
        if name is not None and name not in prompts:
            known = f"one of {', '.join(prompts)}" if prompts else "left out: this model has no prompts"
            raise InvalidRequest("prompt_name", f"must be {known}, got {name[:80]!r}")
        text = text if name is None else prompts[name] + text
        return text.lower() if self.config.is_lower_case else text

    def as_query(self, text: str) -> str:
        return self.prompted(text, self._first_prompt(_QUERY))

    def as_document(self, text: str) -> str:
        return self.prompted(text, self._first_prompt(_DOCUMENT))

    def _first_prompt(self, names: Sequence[str]) -> str | None:
        prompts = dict(self.config.prompts)
        return next((name for name in names if name in prompts), None)

    def before_document(self, query: str, instruction: str | None = None) -> str:
        return _FORM.format(_INSTRUCTION if instruction is None else instruction, query)

    def single(self, ids: list[int], max_len: int, truncate: int | None, field: str) -> Framed:
        """The ids of a text, framed; `truncate`: to so many tokens, -1: to as many as fit."""
        limit = cut_to(truncate, max_len)
        _check(len(ids) + self.framing.size, limit, max_len, truncate, field)
        return Framed(self.framing.single(ids, limit))

    def pair(self, first: list[int], second: list[int], max_len: int, truncate: int | None, field: str) -> Framed:
        limit = cut_to(truncate, max_len)
        _check(len(first) + len(second) + self.framing.pair_size, limit, max_len, truncate, field)
        return Framed(*self.framing.pair(first, second, limit))


def cut_to(truncate: int | None, max_len: int) -> int:
    """The longest an input may be; raises `InvalidRequest`."""
    if truncate is None or truncate == -1:
        return max_len
    if not 1 <= truncate <= max_len:
        raise InvalidRequest(TRUNCATE, f"must be 1 to {max_len}, or -1 for as many as fit, got {truncate}")
    return truncate


def _check(num_tokens: int, limit: int, max_len: int, truncate: int | None, field: str) -> None:
    if truncate is None and num_tokens > limit:
        raise too_long(num_tokens, max_len, field)


def too_long(num_tokens: int, max_len: int, field: str) -> ContextFull:
    return ContextFull(field, f"{num_tokens} tokens {TOO_MANY}", context_len=max_len, num_prompt=num_tokens)
