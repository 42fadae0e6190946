"""Texts to token ids for a front end: short ones at once, long ones in pieces and in a thread that keys take turns in.

Always: one thread works on long texts, a piece at a time and in turn, so neither their number nor their length adds to
memory or to the wait of others; without cuts in the vocabulary a text is one piece. A text that cannot fit is refused
by its number of characters, or at the first token too many. Of texts to be joined one is in memory at a time. Freed
memory goes back to the system.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from chairlift.core.errors import ContextFull, InvalidRequest
from chairlift.runner.memory.malloc import return_freed_memory
from chairlift.server.admission.cost import Cost
from chairlift.text.cuts import MAX_PIECE, Uncut
from chairlift.text.tokenizer import LongTexts, Tokenizer

T = TypeVar("T")
LONG_TEXT = 16_384  # characters; from here on tokenizing would delay other requests
_TIDY_AFTER = 2**20  # characters
_USUAL_CHARACTERS = 4  # of a token


@dataclass(slots=True)
class TokenLimit:
    """How many tokens each text of a request may have."""

    num_tokens: int
    why: str  # "leave no room for output"
    context_len: int | None = None  # of the model, where that is the limit
    num_kept: int | None = None  # a text that is cut needs no more; None: texts are not cut
    cost: Cost = field(default_factory=Cost)  # that tokens are added to

    def refusal(self, why: str, num_tokens: int, is_counted: bool = True) -> InvalidRequest:
        """Of a prompt of so many tokens, or about so many."""
        if self.context_len is None:
            return InvalidRequest("prompt", why)
        return ContextFull("prompt", why, context_len=self.context_len, num_prompt=num_tokens, is_counted=is_counted)


class Turns:
    """A thread that keys take turns in: of those with work for it, the one that has had the least of its time is next.

    Always: work begins only while its client is there and in time (`Cost.check`). A key that comes back has saved
    nothing up.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._is_busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by key
        self._had_s: dict[str, float] = {}  # by the keys that wait, and by others above the floor
        self._floor = 0.0  # of the key that was last served

    async def do(self, work: Callable[[], T], cost: Cost) -> T:
        if self._is_busy:
            await self._turn(cost.key)
        self._is_busy = True
        try:
            cost.check()
            done = self._thread.submit(work)
        except BaseException:
            self._next()
            raise
        loop, began = asyncio.get_running_loop(), time.monotonic()

        def tell(done: Future[T]) -> None:
            if loop.is_closed():
                self._is_busy = False
            else:
                loop.call_soon_threadsafe(self._end, cost.key, time.monotonic() - began)

        done.add_done_callback(tell)
        return await asyncio.wrap_future(done)

    def begin(self, work: Callable[[], object]) -> None:
        """Of the server's own, behind what is being done."""
        self._thread.submit(work)

    async def _turn(self, key: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        if key not in self._waiting:
            self._had_s[key] = max(self._had_s.get(key, 0.0), self._floor)
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it came all the same
                self._next()
            raise

    def _end(self, key: str, seconds: float) -> None:
        had_s = max(self._had_s.get(key, 0.0), self._floor) + seconds
        self._had_s = {other: s for other, s in self._had_s.items() if other in self._waiting or s > self._floor}
        self._had_s[key] = had_s
        self._next()

    def _next(self) -> None:
        self._is_busy = False
        while self._waiting and not self._is_busy:
            key = min(self._waiting, key=self._had_s.__getitem__)
            self._floor = max(self._floor, self._had_s[key])
            turn = self._waiting[key].popleft()
            if not self._waiting[key]:
                del self._waiting[key]
            if not turn.done():
                self._is_busy = True
                turn.set_result(None)


class Encoder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.turns = Turns("tokenizer")
        self._long_texts: LongTexts | None = None  # once the vocabulary was analysed
        self._num_in_flight = 0
        self._untidy = 0  # characters since freed memory went back to the system

    async def warm_up(self) -> None:
        """Analyses the vocabulary before the first long text comes."""
        await self._analysed(Cost())

    async def _analysed(self, cost: Cost) -> LongTexts:
        if self._long_texts is None:
            self._long_texts = await self.turns.do(lambda: self._tokenizer.long_texts, cost)
        return self._long_texts

    async def check(self, num_characters: int, limit: TokenLimit) -> None:
        """Raises `InvalidRequest` if no text of so many characters can fit."""
        if num_characters >= LONG_TEXT:
            _check(num_characters, limit, await self._analysed(limit.cost))

    async def encode_all(self, texts: Sequence[str], add_special: bool, limit: TokenLimit) -> list[list[int]]:
        """Raises `InvalidRequest`."""
        num_characters = sum(map(len, texts))
        if num_characters < LONG_TEXT:
            short = [self._tokenizer.encode(text, add_special) for text in texts]
            limit.cost.num_tokens += sum(map(len, short))
            return short
        long_texts = await self._analysed(limit.cost)
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
        """What `read` makes of the tokens of `head_of(first) + second`, for each pair; control tokens spelt out there
        stay text. Raises `InvalidRequest`, before any are joined where one is too long."""
        plain = self._tokenizer.controls.wrap
        lengths = [len(first) + len(second) for first, second in pairs]
        num_around = len(head_of(""))
        await self.check(num_around + max(lengths), limit)
        num_characters = sum(lengths) + num_around * len(pairs)
        if num_characters >= LONG_TEXT:
            with self._tidying(num_characters):
                return await self._join(pairs, head_of, limit, read)
        short = [self._tokenizer.encode(plain(head_of(first) + second), add_special=False) for first, second in pairs]
        limit.cost.num_tokens += sum(map(len, short))
        return [read(ids) for ids in short]

    async def _join(
        self,
        pairs: Sequence[tuple[str, str]],
        head_of: Callable[[str], str],
        limit: TokenLimit,
        read: Callable[[list[int]], T],
    ) -> list[T]:
        """A head that the pair before had too is made into tokens once, up to its last cut."""
        plain = self._tokenizer.controls.wrap
        long_texts = await self._analysed(limit.cost)
        made, last, begun, rest = list[T](), "", list[int](), ""
        for index, (first, second) in enumerate(pairs):
            if first != last or not index:
                last, head, rest = first, "", head_of(first)
                if long_texts.cuts is not None:
                    head, rest = long_texts.cuts.split_last(rest)
                begun = await self._encode(plain(head), False, limit, long_texts) if head else []
            is_full = limit.num_kept is not None and len(begun) >= limit.num_kept
            ids = [] if is_full else await self._encode(plain(rest + second), False, limit, long_texts)
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
                self.turns.begin(return_freed_memory)

    async def _encode(self, text: str, add_special: bool, limit: TokenLimit, long_texts: LongTexts) -> list[int]:
        ids: list[int] = []
        num_read = 0
        text, has_own_names = self._tokenizer.controls.unwrap(text)
        encode = partial(self._tokenizer.encode_piece, has_own_names=has_own_names, releases_gil=True)
        pieces = iter([text]) if long_texts.cuts is None else long_texts.cuts.pieces(text)
        try:
            for index, piece in enumerate(pieces):
                found = await self.turns.do(partial(encode, piece, add_special and not index), limit.cost)
                limit.cost.num_tokens += len(found)
                ids += found
                num_read += len(piece)
                if len(ids) > limit.num_tokens:
                    why = f"more than {limit.num_tokens} tokens {limit.why}"
                    raise limit.refusal(why, len(ids) * len(text) // num_read, is_counted=num_read == len(text))
                if limit.num_kept is not None and len(ids) >= limit.num_kept:
                    break
        except Uncut:
            raise InvalidRequest(
                "prompt",
                f"holds {MAX_PIECE} bytes without a letter or digit before a space, line break or sign, which is more "
                "than is made into tokens at once; break it up",
            ) from None
        return ids


def _check(num_characters: int, limit: TokenLimit, long_texts: LongTexts) -> None:
    max_characters = limit.num_tokens * long_texts.characters_per_token
    if num_characters > max_characters:
        raise limit.refusal(
            f"{num_characters} characters make more than {limit.num_tokens} tokens, which have at most "
            f"{max_characters}, and more {limit.why}; send fewer",
            max(limit.num_tokens + 1, num_characters // _USUAL_CHARACTERS),
            is_counted=False,
        )
