"""Texts to token ids for a front end: short ones at once, long ones in pieces and in a thread.

Always: one thread works on long texts, a piece at a time and in turn, so neither their number nor their length adds to
memory or to the wait of others; without cuts in the vocabulary a text is one piece. A text that cannot fit is refused
by its number of characters, or at the first token too many. Of texts to be joined one is in memory at a time. Freed
memory goes back to the system.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from chairlift.core.errors import ContextFull, InvalidRequest
from chairlift.runner.memory.malloc import return_freed_memory
from chairlift.text.cuts import MAX_PIECE, Uncut
from chairlift.text.tokenizer import LongTexts, Tokenizer

T = TypeVar("T")
LONG_TEXT = 16_384  # characters; from here on tokenizing would delay other requests
_TIDY_AFTER = 2**20  # characters
_USUAL_CHARACTERS = 4  # of a token


@dataclass(slots=True)
class TokenLimit:
    """How many tokens each text of a request may have, and how many were made in all."""

    num_tokens: int
    why: str  # "leave no room for output"
    context_len: int | None = None  # of the model, where that is the limit
    num_made: int = 0
    num_kept: int | None = None  # a text that is cut needs no more; None: texts are not cut
    has_refused: bool = False  # a text, after it was read

    def refusal(self, why: str, num_tokens: int, is_counted: bool = True) -> InvalidRequest:
        """Of a prompt of so many tokens, or about so many."""
        if self.context_len is None:
            return InvalidRequest("prompt", why)
        return ContextFull("prompt", why, context_len=self.context_len, num_prompt=num_tokens, is_counted=is_counted)


class Encoder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._thread = ThreadPoolExecutor(1, "tokenizer")
        self._num_in_flight = 0
        self._untidy = 0  # characters since freed memory went back to the system

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def warm_up(self) -> None:
        """Analyses the vocabulary before the first long text comes."""
        await self.in_thread(lambda: self._tokenizer.long_texts)

    async def check(self, num_characters: int, limit: TokenLimit) -> None:
        """Raises `InvalidRequest` if no text of so many characters can fit."""
        if num_characters >= LONG_TEXT:
            _check(num_characters, limit, await self.in_thread(lambda: self._tokenizer.long_texts))

    async def encode_all(self, texts: Sequence[str], add_special: bool, limit: TokenLimit) -> list[list[int]]:
        """Raises `InvalidRequest`."""
        num_characters = sum(map(len, texts))
        if num_characters < LONG_TEXT:
            short = [self._tokenizer.encode(text, add_special) for text in texts]
            limit.num_made += sum(map(len, short))
            return short
        long_texts = await self.in_thread(lambda: self._tokenizer.long_texts)
        _check(max(map(len, texts)), limit, long_texts)
        with self._tidying(num_characters):
            return [await self._encode(text, add_special, limit, long_texts) for text in texts]

    async def encode_joined(
        self,
        pairs: Sequence[tuple[str, str]],
        head_of: Callable[[str], str],
        limit: TokenLimit,
        read: Callable[[list[int]], T],
    ) -> list[T]:
        """What `read` makes of the tokens of `head_of(first) + second`, for each pair. Raises `InvalidRequest`, before
        any are joined where one is too long."""
        lengths = [len(first) + len(second) for first, second in pairs]
        num_around = len(head_of(""))
        await self.check(num_around + max(lengths), limit)
        num_characters = sum(lengths) + num_around * len(pairs)
        if num_characters >= LONG_TEXT:
            with self._tidying(num_characters):
                return await self._join(pairs, head_of, limit, read)
        short = [self._tokenizer.encode(head_of(first) + second, add_special=False) for first, second in pairs]
        limit.num_made += sum(map(len, short))
        return [read(ids) for ids in short]

    async def _join(
        self,
        pairs: Sequence[tuple[str, str]],
        head_of: Callable[[str], str],
        limit: TokenLimit,
        read: Callable[[list[int]], T],
    ) -> list[T]:
        """A head that the pair before had too is made into tokens once, up to its last cut."""
        long_texts = await self.in_thread(lambda: self._tokenizer.long_texts)
        made, last, begun, rest = list[T](), "", list[int](), ""
        for index, (first, second) in enumerate(pairs):
            if first != last or not index:
                last, head, rest = first, "", head_of(first)
                if long_texts.cuts is not None:
                    head, rest = long_texts.cuts.split_last(rest)
                begun = await self._encode(head, False, limit, long_texts) if head else []
            is_full = limit.num_kept is not None and len(begun) >= limit.num_kept
            ids = [] if is_full else await self._encode(rest + second, False, limit, long_texts)
            made.append(read(begun + ids))
        return made

    @contextmanager
    def _tidying(self, num_characters: int) -> Iterator[None]:
        """Gives memory back behind much work."""
        self._num_in_flight += 1
        try:
            yield
        finally:
            self._num_in_flight -= 1
            self._untidy += num_characters
            if not self._num_in_flight and self._untidy > _TIDY_AFTER:
                self._untidy = 0
                self._thread.submit(return_freed_memory)

    async def _encode(self, text: str, add_special: bool, limit: TokenLimit, long_texts: LongTexts) -> list[int]:
        ids: list[int] = []
        num_read = 0
        text, has_own_names = self._tokenizer.controls.unwrap(text)
        encode = partial(self._tokenizer.encode_piece, has_own_names=has_own_names, releases_gil=True)
        pieces = iter([text]) if long_texts.cuts is None else long_texts.cuts.pieces(text)
        try:
            for index, piece in enumerate(pieces):
                found = await self.in_thread(partial(encode, piece, add_special and not index))
                limit.num_made += len(found)
                ids += found
                num_read += len(piece)
                if len(ids) > limit.num_tokens:
                    limit.has_refused = True
                    why = f"more than {limit.num_tokens} tokens {limit.why}"
                    raise limit.refusal(why, len(ids) * len(text) // num_read, is_counted=num_read == len(text))
                if limit.num_kept is not None and len(ids) >= limit.num_kept:
                    break
        except Uncut:
            limit.has_refused = True
            raise InvalidRequest(
                "prompt",
                f"holds {MAX_PIECE} bytes without a letter or digit before a space, line break or sign, which is more "
                "than is made into tokens at once; break it up",
            ) from None
        return ids


def _check(num_characters: int, limit: TokenLimit, long_texts: LongTexts) -> None:
    max_characters = limit.num_tokens * long_texts.characters_per_token
    if num_characters > max_characters:
        limit.has_refused = True
        raise limit.refusal(
            f"{num_characters} characters make more than {limit.num_tokens} tokens, which have at most "
            f"{max_characters}, and more {limit.why}; send fewer",
            max(limit.num_tokens + 1, num_characters // _USUAL_CHARACTERS),
            is_counted=False,
        )
