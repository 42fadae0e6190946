"""Token ids to text one token at a time, as the continuation of a prompt.

Always: the pushes and the flush joined are the text of the output behind the prompt: incomplete characters are held
back, one begun by the prompt is completed, and a leading space is dropped only where no text comes before it.
"""

import codecs
from collections.abc import Sequence
from itertools import filterfalse

from chairlift.text.tokenizer import Tokenizer

_LONGEST_PART = 3  # bytes of an incomplete character


def last_bytes(tokenizer: Tokenizer, prompt_ids: Sequence[int], skip_special: bool = True) -> bytes:
    """The prompt's last visible bytes, enough for an incomplete character. To be found once for all samples: it reads
    the whole prompt where all of its tokens are hidden."""
    spelling, hidden = tokenizer.spelling, tokenizer.special_ids if skip_special else frozenset[int]()
    last = b""
    for token_id in filterfalse(hidden.__contains__, reversed(prompt_ids)):
        last = spelling[token_id] + last
        if len(last) >= _LONGEST_PART:
            break
    return last


class Detokenizer:
    """`before`: the prompt's last bytes (`last_bytes`)."""

    __slots__ = ("_decoder", "_drops_space", "_has_part", "_hidden", "_spelling", "_whole")

    def __init__(self, tokenizer: Tokenizer, before: bytes, skip_special: bool = True) -> None:
        self._spelling = tokenizer.spelling
        self._whole = tokenizer.whole_texts
        self._hidden = tokenizer.special_ids if skip_special else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._has_part = False  # of a character, which the decoder holds
        self._drops_space = tokenizer.spelling.drops_first_space and not before
        self._decode(before)

    def push(self, token_id: int) -> str:
        if token_id in self._hidden:
            return ""
        text = None if self._has_part else self._whole[token_id]
        if text is None:
            text = self._decode(self._spelling[token_id])
        return self._first(text) if self._drops_space else text

    def flush(self) -> str:
        text = self._decoder.decode(b"", True)
        return self._first(text) if self._drops_space else text

    def _decode(self, spelled: bytes) -> str:
        text = self._decoder.decode(spelled)
        self._has_part = bool(self._decoder.getstate()[0])
        return text

    def _first(self, text: str) -> str:
        if not text:
            return text
        self._drops_space = False
        return text.removeprefix(" ")
