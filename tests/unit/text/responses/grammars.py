"""Matchers over the embedded model's vocabulary, for tests of grammars."""

import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from chairlift.core.structured import Structured
from chairlift.models.source import locate
from chairlift.text.find import load_tokenizer
from chairlift.text.structured.grammar import LIMITS, grammar_of
from chairlift.text.structured.vocabulary import grammar_vocabulary
from chairlift.text.tokenizer import Tokenizer

END = 2
MAX_TOKENS = 120  # of a random answer
# Special tokens of the embedded model, as if they were those of another.
SPECIAL_IDS = tuple(range(3, 17))


@lru_cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(locate(None))


@lru_cache
def vocabulary() -> LLTokenizer:
    return grammar_vocabulary(tokenizer(), tokenizer().vocab_size, [END])


def matcher(shape: Structured) -> LLMatcher:
    made = LLMatcher(vocabulary(), grammar_of(shape), log_level=0, limits=LIMITS)
    assert not made.is_error(), made.get_error()
    return made


def tokens(text: str, special: Mapping[str, int]) -> list[int]:
    pattern = re.compile(f"({'|'.join(map(re.escape, special))})") if special else re.compile("(?!)")
    found: list[int] = []
    for part in pattern.split(text):
        found += [special[part]] if part in special else tokenizer().encode(part, add_special=False)
    return found


def accepts(shape: Structured, text: str, special: Mapping[str, int] | None = None) -> bool:
    """Whether the text is a whole answer of the shape."""
    made = matcher(shape)
    ids = tokens(text, special or {})
    return made.try_consume_tokens(ids) == len(ids) and made.is_accepting()


def begins(shape: Structured, text: str, special: Mapping[str, int] | None = None) -> bool:
    made = matcher(shape)
    ids = tokens(text, special or {})
    return made.try_consume_tokens(ids) == len(ids)


def walk(
    shape: Structured, rng: random.Random, closers: Sequence[str], special: Mapping[str, int], start: str = ""
) -> str | None:
    """A random answer that the shape allows; None where it does not end soon. `closers`: texts that are tried often."""
    made = matcher(shape)
    texts = {token: text for text, token in special.items()}
    found = tokens(start, special)
    assert made.consume_tokens(found), made.get_error()
    while len(found) < MAX_TOKENS:
        ids = _step(made, rng, closers, special)
        if made.is_accepting() and (not ids or rng.random() < 0.5):
            return b"".join(texts[t].encode() if t in texts else tokenizer().spelling[t] for t in found).decode()
        assert ids and made.consume_tokens(ids), made.get_error()
        found += ids
    return None


def _step(made: LLMatcher, rng: random.Random, closers: Sequence[str], special: Mapping[str, int]) -> list[int]:
    if made.is_stopped():
        return []
    closing = tokens(rng.choice(closers), special)
    if rng.random() < 0.6 and made.validate_tokens(closing) == len(closing):
        return closing
    bits = np.frombuffer(made.compute_bitmask(), dtype=np.uint8)
    known = np.unpackbits(bits, bitorder="little")[: tokenizer().vocab_size]
    known[END] = 0
    allowed = np.flatnonzero(known & readable() if (known & readable()).any() else known)
    return [int(allowed[rng.randrange(len(allowed))])] if len(allowed) else []


@lru_cache
def readable() -> "np.ndarray[Any, Any]":
    """Which tokens are not of broken bytes, which may not be followed by their rest."""
    is_text = ["\ufffd" not in tokenizer().piece(token) for token in range(tokenizer().vocab_size)]
    return np.array(is_text, dtype=np.uint8)
