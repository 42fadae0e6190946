"""Stop strings over text that comes in pieces.

Always: the result does not depend on how the text was cut. The match that ends first wins, and of two that end at the
same character the longer; text that may become a match is held back. The cost is linear in text and stop strings.
"""

from collections.abc import Sequence
from functools import lru_cache

MAX_STOPS = 64
MAX_STOP_CHARACTERS = 1024


class StopChecker:
    """`include`: the stop string itself belongs to the output."""

    __slots__ = ("_first", "_held", "_include", "_matched", "_progress", "_stops")

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        if "" in stops:
            raise ValueError("a stop string must not be empty")
        # Longest first, so that the first match found at a character is the one wanted.
        self._stops = [(stop, _fallbacks(stop)) for stop in sorted(set(stops), key=lambda s: (-len(s), s))]
        self._first = {stop[0] for stop in stops}
        self._progress = [0] * len(self._stops)  # characters of each stop string that end the text so far
        self._include = include
        self._held = ""
        self._matched: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """The text that may be shown now, and the stop string once one is complete; no text comes after it."""
        if self._matched is not None:
            return "", self._matched
        if not any(self._progress) and self._first.isdisjoint(text):
            return text, None
        for at, character in enumerate(text):
            stop = self._advance(character)
            if stop is not None:
                return self._end(self._held + text[: at + 1], stop)
        if self._include:
            return text, None
        text = self._held + text
        keep = len(text) - max(self._progress)
        self._held = text[keep:]
        return text[:keep], None

    def flush(self) -> str:
        """The text held back, which became no stop string."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> str | None:
        progress = self._progress
        for i, (stop, fallbacks) in enumerate(self._stops):
            length = progress[i]
            while length and stop[length] != character:
                length = fallbacks[length]
            if stop[length] == character:
                length += 1
            progress[i] = length
            if length == len(stop):
                return stop
        return None

    def _end(self, text: str, stop: str) -> tuple[str, str]:
        self._matched = stop
        self._held = ""
        return (text if self._include else text[: len(text) - len(stop)]), stop


@lru_cache(maxsize=64)
def _fallbacks(stop: str) -> tuple[int, ...]:
    """For each length of a partial match, the length of the longest shorter one that it ends with (KMP)."""
    fallbacks = [0, 0]
    length = 0
    for character in stop[1:]:
        while length and stop[length] != character:
            length = fallbacks[length]
        if stop[length] == character:
            length += 1
        fallbacks.append(length)
    return tuple(fallbacks)
