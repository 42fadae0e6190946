"""Takes texts out of a text that comes in pieces: those of special tokens that mean nothing in an answer."""

from collections.abc import Iterable

from chairlift.text.responses.reading.cursor import marks_of


class Hidden:
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
