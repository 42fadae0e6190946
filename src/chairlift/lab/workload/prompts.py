"""Synthetic prompts for items: token ids, or text of an exact number of tokens.

    hash_ids (4, 9):   | drawn from 4 ... | drawn from 9 ..|
                       0             hash_block      prompt_tokens

Always: a prompt depends on seed and index alone, is the same in every process, and is equal where hash ids are equal.
"""

import math
import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.item import Item

T = TypeVar("T")
# Common words that most tokenizers encode as a single token, whatever precedes them.
_WORDS = (
    "about after air along always and answer are as at back because before being best between black both bring by "
    "came car change city come country day different does door each earth end even example face far feel few fire "
    "fish food form four full gave girl go got green group had hand has he hear her high his home house idea "
    "important into it just kind knew land last learn left let life like list live look made man map may mean might "
    "money more most move music my near never next no not nothing number off old once only or other out own paper "
    "pass picture plan play power question rain read real rest river rock round run same say sea see sentence she "
    "short show simple small so song sound space star state step stop street study sun table talk ten that their "
    "then these thing this thought through to told took town tree try two until us very wait want was water we well "
    "were what where while who will with wood work would year yet young"
)


class _Drawn(Generic[T]):
    def __init__(self, seed: int, draw: Callable[[str, int], list[T]]) -> None:
        self._seed = seed
        self._draw = draw
        self._block = lru_cache(maxsize=256)(draw)

    def parts(self, item: Item, index: int) -> list[T]:
        """`index`: the item's position in the workload."""
        if not item.hash_ids:
            return self._draw(f"{self._seed} request {index}", item.prompt_tokens)
        parts: list[T] = []
        for hash_id, count in blocks(item):
            parts += self._block(f"{self._seed} block {hash_id}", math.ceil(item.hash_block))[:count]
        return parts


class TokenPrompts:
    """Prompts as token ids; a written prompt keeps its own. All prompts share the id objects, to save memory."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._ids = [number % vocab_size for number in range(1 << 16)]
        self._drawn = _Drawn(seed, self._draw)

    def tokens(self, item: Item, index: int) -> tuple[int, ...]:
        if item.tokens:
            return tuple(token % self._vocab_size for token in item.tokens)  # a profile may have fewer
        return tuple(self._drawn.parts(item, index))

    def _draw(self, key: str, count: int) -> list[int]:
        ids = self._ids
        return [ids[number] for number in memoryview(random.Random(key).randbytes(2 * count)).cast("H")]


class TextPrompts:
    """Prompts as text, in which `count` finds exactly the item's number of tokens."""

    def __init__(self, seed: int, count: Callable[[str], int]) -> None:
        self._count = count
        single = [word for word in _WORDS.split() if count(word) == 1 and count(f"{word} {word} {word}") == 3]
        if len(single) < 16:
            raise InvalidConfig(
                "this tokenizer has too few words of one token: no prompt of a given length can be made"
            )
        self._drawn = _Drawn(seed, lambda key, count: random.Random(key).choices(single, k=count))

    def text(self, item: Item, index: int) -> str:
        text = " ".join(self._drawn.parts(item, index))
        found = self._count(text)
        if found != item.prompt_tokens:
            raise InvalidConfig(f"a prompt of {item.prompt_tokens} tokens could not be made: it has {found}")
        return text


def blocks(item: Item) -> Iterator[tuple[int, int]]:
    """Each block's hash id and how many tokens of the prompt are in it."""
    for index, hash_id in enumerate(item.hash_ids):
        # Blocks begin at the first whole token of their share, so that a divided prompt keeps every boundary.
        end = min(item.prompt_tokens, math.ceil((index + 1) * item.hash_block))
        start = math.ceil(index * item.hash_block)
        if end > start:
            yield hash_id, end - start
