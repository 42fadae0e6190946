"""Reads answers of several messages, each behind a header that names its channel or, for a call, the tool.

Always: text that stands where a header should, and is none, is content; only a header that was cut goes to no client.
"""

from collections.abc import Iterable, Mapping

from chairlift.text.responses.reading.cursor import Cursor, Marks, Waits, marks_of
from chairlift.text.responses.reading.json_text import read_arguments
from chairlift.text.responses.reading.notations import Call
from chairlift.text.responses.reading.sink import Sink
from chairlift.text.responses.templates.template import Channels
from chairlift.text.responses.tools.tool import Tool

_MAX_BLANKS = 4  # before a header


def read_channels(cursor: Cursor, sink: Sink, channels: Channels, tools: Mapping[str, Tool]) -> Waits[None]:
    heads = marks_of((channels.message, channels.end, *channels.last))
    ends = marks_of((channels.start, channels.channel, channels.end, *channels.last))
    begins = (channels.start, channels.channel)
    mark = ""  # the last one
    while True:
        header = [mark]
        if mark not in begins:
            mark = yield from _opening(cursor, (channels.recipient, channels.message, *begins))
            header = [cursor.kept()]
            if not mark:  # no header: the words themselves, or a mark that ends what is not there
                sink.text(header[0])
                mark = yield from cursor.until(ends, sink.text)
                if not mark:
                    return
                continue
        if mark != channels.message:
            mark = yield from cursor.until(heads, header.append)
        text = "".join(header)
        if mark == channels.message:
            mark = yield from _read_message(cursor, sink, channels, tools, text, ends)
        elif not any(begin in text for begin in begins):
            sink.text(text)
        if not mark:
            return


def _opening(cursor: Cursor, literals: Iterable[str]) -> Waits[str]:
    """Reads the one of them that comes next, behind blanks; empty: none does."""
    cursor.keep()
    yield from cursor.blanks(_MAX_BLANKS)
    for each in literals:
        if (yield from cursor.literal(each)):
            return each
    return ""


def _read_message(
    cursor: Cursor, sink: Sink, channels: Channels, tools: Mapping[str, Tool], header: str, ends: Marks
) -> Waits[str]:
    """The mark that ends it."""
    _, is_call, recipient = header.partition(channels.recipient)
    if is_call and tools:
        call = Call(cursor, sink, tools, is_bare=False)
        if call.begin(_name(recipient)):
            is_whole = yield from read_arguments(cursor, call.arguments)
            mark = yield from cursor.until(ends, call.arguments)
            call.end(is_whole)
            return mark
    sink.mark(is_reasoning=channels.reasoning in header)
    mark = yield from cursor.until(ends, sink.text)
    if mark:
        sink.mark()
    return mark


def _name(recipient: str) -> str:
    name = recipient.split("<", 1)[0].split()
    return name[0] if name else ""
