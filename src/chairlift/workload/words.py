"""Made-up prompts as text of an exact number of tokens, for servers and routes that take no token ids.

Always: the text depends on seed and place alone and is equal where hash ids are equal; `count` finds exactly the asked
number of tokens in it. Words are common ones that are a single token each, whatever stands before them.
"""

import math
import random
from collections.abc import Callable
from functools import lru_cache

from chairlift.core.errors import InvalidConfig
from chairlift.workload.item import Item
from chairlift.workload.prompts import blocks

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


class Words:
    def __init__(self, seed: int, count: Callable[[str], int]) -> None:
        self._seed = seed
        self._count = count
        self._single = [word for word in _WORDS.split() if count(word) == 1 and count(f"{word} {word} {word}") == 3]
        if len(self._single) < 16:
            raise InvalidConfig(
                "this tokenizer has too few words of one token: no prompt of a given length can be made"
            )
        self._block = lru_cache(maxsize=256)(self._draw)

    def text(self, item: Item, index: int) -> str:
        """`index`: the item's place in the workload. Checked: the tokens are counted, and an error says so."""
        if item.hash_ids:
            words = []
            for hash_id, count in blocks(item):
                words += self._block(f"{self._seed} block {hash_id}", math.ceil(item.hash_block))[:count]
        else:
            words = self._draw(f"{self._seed} request {index}", item.prompt_tokens)
        text = " ".join(words)
        found = self._count(text)
        if found != item.prompt_tokens:
            raise InvalidConfig(f"a prompt of {item.prompt_tokens} tokens could not be made: it has {found}")
        return text

    def _draw(self, key: str, count: int) -> list[str]:
        return random.Random(key).choices(self._single, k=count)
