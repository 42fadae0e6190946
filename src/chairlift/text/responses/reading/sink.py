"""Where a reader puts what it finds, as events.

Always: line breaks beside a mark belong to it, not to the text: up to `MAX_BREAKS` before it, all behind it.
Neighbouring pieces of one kind become one event.
"""

from collections.abc import Callable
from functools import partial

from chairlift.text.responses.reading.events import CallArguments, CallBegins, CallEnds, Content, Event, Reasoning

MAX_BREAKS = 16  # that are held back at the end of a text, until it is known whether a mark follows


class Sink:
    __slots__ = (
        "_arguments",
        "_breaks",
        "_events",
        "_index",
        "_is_behind_mark",
        "_is_reasoning",
        "_kind",
        "_pieces",
        "_wrote",
    )

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._breaks = ""
        self._is_behind_mark = False
        self._is_reasoning = False
        self._index = -1
        self._wrote = False  # arguments of this call
        self._pieces: list[str] = []  # of the event that is being made
        self._kind: Callable[[str], Event] = Content
        self._arguments = partial(CallArguments, 0)

    @property
    def is_reasoning(self) -> bool:
        return self._is_reasoning

    def events(self) -> list[Event]:
        self._join()
        events, self._events = self._events, []
        return events

    def text(self, text: str) -> None:
        if self._is_behind_mark:
            text = text.lstrip("\n")
            self._is_behind_mark = not text
        text = self._breaks + text
        num_breaks = min(len(text) - len(text.rstrip("\n")), MAX_BREAKS)
        end = len(text) - num_breaks
        self._breaks = text[end:]
        self._write(text[:end])

    def mark(self, is_reasoning: bool = False) -> None:
        """A mark stands here: what comes next is reasoning, or content."""
        self._breaks, self._is_behind_mark, self._is_reasoning = "", True, is_reasoning

    def flush(self) -> None:
        breaks, self._breaks = self._breaks, ""
        self._write(breaks)

    def begin(self, name: str) -> None:
        self.mark()
        self._join()
        self._index += 1
        self._wrote = False
        self._arguments = partial(CallArguments, self._index)
        self._events.append(CallBegins(self._index, name))

    def arguments(self, text: str) -> None:
        self._wrote = self._wrote or bool(text)
        self._piece(self._arguments, text)

    def end(self, is_whole: bool) -> None:
        if is_whole and not self._wrote:
            self.arguments("{}")
        self._join()
        self._events.append(CallEnds(self._index))
        self._is_behind_mark = True

    def _write(self, text: str) -> None:
        self._piece(Reasoning if self._is_reasoning else Content, text)

    def _piece(self, kind: Callable[[str], Event], text: str) -> None:
        if kind is not self._kind:
            self._join()
            self._kind = kind
        if text:
            self._pieces.append(text)

    def _join(self) -> None:
        if self._pieces:
            self._events.append(self._kind("".join(self._pieces)))
            self._pieces = []
