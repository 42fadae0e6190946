"""A model's vocabulary as the grammar library reads it: the bytes of each token, special tokens, end tokens."""

from collections.abc import Sequence
from functools import cache

from llguidance import LLTokenizer

from chairlift.text.tokenizer import Tokenizer


class _Tokens:
    """What the library asks of a tokenizer."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer, size: int, end_ids: Sequence[int]) -> None:
        self.eos_token_id = end_ids[0]
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.spelling[token] for token in range(size)]
        self.special_token_ids = sorted({*tokenizer.special_ids, *end_ids})
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        """Of text that a grammar forces: the model is to write it in the tokens that it knows it by."""
        return self._tokenizer.encode(text, add_special=False)


def grammar_vocabulary(tokenizer: Tokenizer, size: int, end_ids: Sequence[int]) -> LLTokenizer:
    """`size`: of the model's logits, which may be wider than the tokenizer's vocabulary; masks forbid what it lacks.
    A text that a grammar has completed can only end: by one of `end_ids`, of which there must be one."""
    return LLTokenizer(_Tokens(tokenizer, size, end_ids), n_vocab=size, eos_token=list(end_ids))  # type: ignore[arg-type]


@cache
def byte_vocabulary() -> LLTokenizer:
    """Of single bytes: whether a text is allowed does not depend on the model."""
    return LLTokenizer("byte")
