"""Reads an answer as it comes, by the template of its family: content, reasoning and calls, as events.

Always: the events, joined by kind, do not depend on how the text was cut; nothing is lost or doubled. Text that only
looks like the start of a call is content, all of it, unless the answer ends before it could show a name; a call that
breaks off later or is not well formed goes out as it was written. Marks go to no client. The text comes with special
tokens in it: those that mean nothing here are dropped.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from chairlift.text.responses.reading.braced import read_braced_call
from chairlift.text.responses.reading.channels import read_channels
from chairlift.text.responses.reading.cursor import Cursor, Hidden, TooLong, Waits, marks_of
from chairlift.text.responses.reading.events import Event
from chairlift.text.responses.reading.notations import (
    Call,
    read_json_calls,
    read_named_call,
    read_python_calls,
    read_tagged_call,
)
from chairlift.text.responses.reading.sink import Sink
from chairlift.text.responses.templates.template import (
    BracedCall,
    Calls,
    JsonCall,
    NamedCall,
    PythonCall,
    ResponseTemplate,
    Span,
    TaggedCall,
)
from chairlift.text.responses.tools.tool import Tool

MAX_BLANKS = 4  # before the mark that opens reasoning or a bare call
_READERS: dict[type, Any] = {
    JsonCall: read_json_calls, NamedCall: read_named_call, TaggedCall: read_tagged_call, PythonCall: read_python_calls,
    BracedCall: read_braced_call,
}  # fmt: skip
_BARE: dict[type, tuple[str, ...]] = {JsonCall: ("{",), PythonCall: ("[",)}
_WHOLE = "\0"  # no mark: the call ended as it should


@lru_cache(maxsize=16)
def _marks_among(special: frozenset[str], marks: frozenset[str]) -> frozenset[str]:
    return frozenset(text for text in special if any(text in mark for mark in marks))


class ResponseReader:
    """`in_reasoning`: the prompt ends inside reasoning. `special`: the texts of the vocabulary's special tokens.
    Without tools, calls are text."""

    def __init__(
        self,
        template: ResponseTemplate,
        *,
        tools: Iterable[Tool] = (),
        in_reasoning: bool = False,
        special: Iterable[str] = (),
    ) -> None:
        self._template = template
        self._tools = {tool.name: tool for tool in tools}
        self._calls = template.calls if self._tools else None
        self._in_reasoning = in_reasoning
        special = frozenset(special)
        # Marks that are special tokens mean nothing in the wrong place, and are dropped there; others always.
        self._dropped = _marks_among(special, template.marks)
        self._hidden = Hidden(special - self._dropped)
        self._cursor, self._sink = Cursor(), Sink()
        self._reading = self._read()
        next(self._reading)  # to its first wait

    @property
    def is_reasoning(self) -> bool:
        """Whether what was read last leaves reasoning open."""
        return self._sink.is_reasoning

    def push(self, text: str) -> list[Event]:
        text = self._hidden.push(text)
        if text:
            self._cursor.feed(text)
            next(self._reading)
        return self._sink.events()

    def finish(self) -> list[Event]:
        """What was held back, once the answer is over."""
        self._cursor.feed(self._hidden.finish())
        self._cursor.close()
        for _ in self._reading:
            pass
        self._sink.flush()
        return self._sink.events()

    def _read(self) -> Waits[None]:
        if self._template.channels:
            yield from read_channels(self._cursor, self._sink, self._template.channels, self._tools)
            return
        if self._template.reasoning:
            yield from self._read_reasoning(self._template.reasoning)
        if self._calls and not self._calls.open and not self._calls.section:
            yield from self._read_bare(self._calls)
        marks = marks_of({*self._dropped, self._calls.mark if self._calls else ""})
        while mark := (yield from self._cursor.until(marks, self._sink.text)):
            while self._calls and mark == self._calls.mark:
                mark = yield from self._read_calls(self._calls)

    def _read_reasoning(self, span: Span) -> Waits[None]:
        if not self._in_reasoning:
            self._cursor.keep()
            yield from self._cursor.blanks(MAX_BLANKS)
            if not (yield from self._cursor.literal(span.open)):
                self._sink.text(self._cursor.kept())
                return
            self._cursor.forget()
        self._sink.mark(is_reasoning=True)
        marks = marks_of({*self._dropped, span.close})
        while mark := (yield from self._cursor.until(marks, self._sink.text)):
            if mark == span.close:
                self._sink.mark()
                return

    def _read_bare(self, calls: Calls) -> Waits[None]:
        """A call that begins the answer."""
        self._cursor.keep()
        yield from self._cursor.blanks(MAX_BLANKS)
        if (yield from self._cursor.peek()) in _BARE[type(calls.notation)]:
            mark = yield from self._read_call(calls, "", is_bare=True)
            while mark == calls.mark != "":
                mark = yield from self._read_calls(calls)
        else:
            self._sink.text(self._cursor.kept())

    def _read_calls(self, calls: Calls) -> Waits[str]:
        """Calls behind their first mark, up to the next mark that is none of theirs, or is to be read next."""
        self._cursor.keep()
        if calls.section is None:
            return (yield from self._read_call(calls, calls.mark))
        mark = yield from self._read_call(calls, calls.mark)
        while mark in (_WHOLE, calls.close):
            yield from self._cursor.blanks()
            if (yield from self._cursor.ending(calls.section.close)):
                return ""
            self._cursor.keep()
            mark = yield from self._read_call(calls, "")
        return mark

    def _read_call(self, calls: Calls, mark: str, is_bare: bool = False) -> Waits[str]:
        """The mark that a broken call ends at."""
        call = Call(self._cursor, self._sink, self._tools, is_bare)
        try:
            is_whole = yield from self._read_notation(calls, call)
        except TooLong:
            is_whole = False
        if not call.num:
            if self._cursor.has_run_out and not is_bare:
                self._sink.mark()
                self._cursor.drop()
            else:
                self._sink.text(mark + self._cursor.kept())
            return ""
        if is_whole:
            call.end()
            yield from self._cursor.blanks()
        if is_whole and (yield from self._cursor.ending(calls.close)):
            return _WHOLE
        # The rest up to the mark that ends it: of the arguments, or behind them.
        take = call.arguments if call.is_open else self._sink.text
        closes = {calls.close, calls.section.close if calls.section else "", calls.mark, *self._dropped}
        found = yield from self._cursor.until(marks_of(closes), take)
        call.end(is_whole=False)
        return found

    def _read_notation(self, calls: Calls, call: Call) -> Waits[bool]:
        if calls.section and calls.open:
            yield from self._cursor.blanks()
            if not (yield from self._cursor.literal(calls.open)):
                return False
        yield from self._cursor.blanks()
        found: bool = yield from _READERS[type(calls.notation)](self._cursor, call, calls.notation)
        return found
