"""Prompts for items: token ids that depend on seed and place alone, and are equal where hash ids are equal.

    hash_ids (4, 9):   | tokens of 4 ... | tokens of 9 ..|
                       0            hash_block     prompt_tokens

The same in every process. Ids are objects shared between all prompts, which keeps them small. A prompt that was written
is itself.
"""

import math
import random
from collections.abc import Iterator
from functools import lru_cache

from chairlift.workload.item import Item


class Prompts:
    def __init__(self, seed: int, vocab_size: int) -> None:
        self._seed = seed
        self._vocab_size = vocab_size
        self._ids = [number % vocab_size for number in range(1 << 16)]
        self._block = lru_cache(maxsize=256)(self._draw)

    def tokens(self, item: Item, index: int) -> tuple[int, ...]:
        """`index`: the item's place in the workload."""
        if item.tokens:
            return tuple(token % self._vocab_size for token in item.tokens)  # a profile may have fewer
        if not item.hash_ids:
            return tuple(self._draw(f"{self._seed} request {index}", item.prompt_tokens))
        tokens: list[int] = []
        for hash_id, count in blocks(item):
            tokens += self._block(f"{self._seed} block {hash_id}", math.ceil(item.hash_block))[:count]
        return tuple(tokens)

    def _draw(self, key: str, count: int) -> list[int]:
        ids = self._ids
        return [ids[number] for number in memoryview(random.Random(key).randbytes(2 * count)).cast("H")]


def blocks(item: Item) -> Iterator[tuple[int, int]]:
    """Each block's hash id and how many tokens of the prompt are in it."""
    for index, hash_id in enumerate(item.hash_ids):
        # Blocks begin at the first whole token of their share, so that a divided prompt keeps every boundary.
        end = min(item.prompt_tokens, math.ceil((index + 1) * item.hash_block))
        start = math.ceil(index * item.hash_block)
        if end > start:
            yield hash_id, end - start
