"""Reads answers of several messages, each behind a header that names its channel or, for a call, the tool."""

from collections.abc import Mapping

from chairlift.text.responses.reading.cursor import Cursor, Marks, Waits, marks_of
from chairlift.text.responses.reading.json_text import read_arguments
from chairlift.text.responses.reading.notations.call import Call
from chairlift.text.responses.reading.sink import Sink
from chairlift.text.responses.templates.template import Channels
from chairlift.text.responses.tools.tool import Tool


def read_channels(cursor: Cursor, sink: Sink, channels: Channels, tools: Mapping[str, Tool]) -> Waits[None]:
    heads = marks_of((channels.message, channels.end, *channels.last))
    ends = marks_of((channels.start, channels.channel, channels.end, *channels.last))
    if (yield from cursor.peek()) not in ("<", " ", ""):  # a model that writes no header
        yield from cursor.until(ends, sink.text)
    while True:
        header: list[str] = []
        mark = yield from cursor.until(heads, header.append)
        if mark == channels.message:
            yield from _read_message(cursor, sink, channels, tools, "".join(header), ends)
        elif not mark:
            return


def _read_message(
    cursor: Cursor, sink: Sink, channels: Channels, tools: Mapping[str, Tool], header: str, ends: Marks
) -> Waits[None]:
    _, is_call, recipient = header.partition(channels.recipient)
    if is_call and tools:
        call = Call(cursor, sink, tools, is_bare=False)
        if call.begin(_name(recipient)):
            is_whole = yield from read_arguments(cursor, call.arguments)
            yield from cursor.until(ends, call.arguments)
            call.end(is_whole)
            return
    sink.mark(is_reasoning=channels.reasoning in header)
    if (yield from cursor.until(ends, sink.text)):
        sink.mark()


def _name(recipient: str) -> str:
    name = recipient.split("<", 1)[0].split()
    return name[0] if name else ""
