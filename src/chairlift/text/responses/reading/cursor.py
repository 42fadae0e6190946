"""A place in a text that is still coming. Reading functions are generators: each `yield` waits for more of the text.

Always: what a function finds does not depend on how the text was cut, and each character is looked at a bounded number
of times. Text is kept only as far as it was not read, or since `keep` was called.
"""

import re
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Waits = Generator[None, None, T]
Take = Callable[[str], None]

MAX_KEPT = 64 * 1024  # characters of a call before its name is known; what is longer is no call
_BLANKS = " \t\r\n"


class TooLong(Exception):
    """More was kept than a call may need."""


class Marks:
    """Literals to look for; of two that begin at one place, the longer counts. Make them by `marks_of`."""

    __slots__ = ("_firsts", "_longest", "_pattern", "_prefixes")

    def __init__(self, texts: frozenset[str]) -> None:
        ordered = sorted(filter(None, texts), key=lambda text: (-len(text), text))
        self._longest = max(map(len, ordered), default=0)
        self._pattern = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")
        self._prefixes = frozenset(text[:end] for text in ordered for end in range(1, len(text)))
        self._firsts = frozenset(text[0] for text in ordered)

    def find(self, text: str, at: int, is_over: bool) -> tuple[int, str]:
        """Where the next one begins, and the mark; where none is complete, how far there is surely none."""
        open_at = len(text) if is_over else self._may_begin(text, at)
        found = self._pattern.search(text, at)
        return (found.start(), found[0]) if found and found.start() < open_at else (open_at, "")

    def _may_begin(self, text: str, at: int) -> int:
        """Where a mark begins that the next piece of text may complete."""
        start = max(at, len(text) - self._longest + 1)
        if self._firsts.isdisjoint(text[start:]):
            return len(text)
        starts = range(start, len(text))
        return next((start for start in starts if text[start:] in self._prefixes), len(text))


@lru_cache(maxsize=128)
def _cached(texts: frozenset[str]) -> Marks:
    return Marks(texts)


def marks_of(texts: Iterable[str]) -> Marks:
    """The same for every answer: some vocabularies have thousands of special tokens."""
    return _cached(frozenset(texts))


class Cursor:
    """`has_run_out`: more was asked for than there was when the text was over."""

    __slots__ = ("_at", "_is_over", "_kept", "_num_kept", "_text", "has_run_out")

    def __init__(self) -> None:
        self._text, self._at, self._is_over = "", 0, False
        self.has_run_out = False
        self._kept: list[str] | None = None
        self._num_kept = 0

    def feed(self, text: str) -> None:
        self._text, self._at = self._text[self._at :] + text, 0

    def close(self) -> None:
        self._is_over = True

    def keep(self) -> None:
        """What is read from here on, for `kept`; `TooLong` is raised when it becomes more than `MAX_KEPT`."""
        self._kept, self._num_kept = [], 0

    def kept(self) -> str:
        """What was read since `keep`; ends the keeping."""
        kept, self._kept = self._kept or [], None
        return "".join(kept)

    def drop(self) -> None:
        """Leaves out what was kept, and what is left of a text that is over."""
        self._kept, self._at = None, len(self._text)

    def forget(self) -> None:
        self._kept = None

    def until(self, marks: Marks, take: Take) -> Waits[str]:
        """Hands out the text before the next mark and reads the mark; empty: there is none up to the end."""
        while True:
            end, mark = marks.find(self._text, self._at, self._is_over)
            if end > self._at:
                take(self._read(end - self._at))
            if mark:
                self._read(len(mark))
                return mark
            if self._is_over:
                return ""
            yield

    def peek(self) -> Waits[str]:
        """The next character; empty at the end."""
        while self._at >= len(self._text) and not self._is_over:
            yield
        self.has_run_out |= self._at >= len(self._text)
        return self._text[self._at : self._at + 1]

    def skip(self, num: int = 1) -> str:
        return self._read(num)

    def blanks(self, most: int | None = None) -> Waits[None]:
        num = 0
        while num != most and (char := (yield from self.peek())) and char in _BLANKS:
            self._read(1)
            num += 1

    def literal(self, text: str) -> Waits[bool]:
        """Reads the text if it comes next, and else nothing."""
        while True:
            there = self._text[self._at : self._at + len(text)]
            if there == text:
                self._read(len(text))
                return True
            if self._is_over or not text.startswith(there):
                self.has_run_out |= text.startswith(there)
                return False
            yield

    def ending(self, text: str) -> Waits[bool]:
        """As `literal`; where the whole is cut inside of the text, what there is of it counts."""
        if (yield from self.literal(text)):
            return True
        there = self._text[self._at :]
        is_cut = self._is_over and bool(there) and text.startswith(there)
        if is_cut:
            self._read(len(there))
        return is_cut

    def run(self, pattern: re.Pattern[str]) -> Waits[str]:
        """Reads the characters that the pattern, of one character, takes."""
        parts = []
        while char := (yield from self.peek()):
            if not pattern.fullmatch(char):
                break
            parts.append(self._read(1))
        return "".join(parts)

    def scan(self, pattern: re.Pattern[str], take: Take) -> Waits[str]:
        """Hands out the text before the next character that the pattern finds, which is not read; empty: the end."""
        while True:
            found = pattern.search(self._text, self._at)
            end = found.start() if found else len(self._text)
            if end > self._at:
                take(self._read(end - self._at))
            if found:
                return found[0]
            if self._is_over:
                self.has_run_out = True
                return ""
            yield

    def _read(self, num: int) -> str:
        text = self._text[self._at : self._at + num]
        room = len(text) if self._kept is None else MAX_KEPT - self._num_kept
        if self._kept is not None:
            self._kept.append(text[:room])
            self._num_kept += len(text[:room])
        self._at += len(text[:room])
        if len(text) > room:
            raise TooLong
        return text


class Hidden:
    """Takes texts out of a text that comes in pieces: those of special tokens that mean nothing in an answer."""

    __slots__ = ("_held", "_marks")

    def __init__(self, texts: Iterable[str]) -> None:
        self._marks = marks_of(texts)
        self._held = ""

    def push(self, text: str) -> str:
        return self._without(text, is_over=False)

    def finish(self) -> str:
        return self._without("", is_over=True)

    def _without(self, text: str, is_over: bool) -> str:
        text = self._held + text
        parts, at = [], 0
        while True:
            end, mark = self._marks.find(text, at, is_over)
            parts.append(text[at:end])
            at = end + len(mark)
            if not mark:
                self._held = text[end:]
                return "".join(parts)
