"""A streamed answer as Anthropic's events.

    message_start, ping, then for each block: content_block_start, content_block_delta..., content_block_stop;
    last: message_delta with the reason to stop and the usage, message_stop

Always: blocks are told one after another, in the order of the text; a call's block ends with the call. A call whose
arguments are no JSON object, as one that was cut, is no reason to stop.
"""

from collections.abc import Iterator

import msgspec

from chairlift.server.answer import Delta
from chairlift.server.anthropic.dialect import failure_body
from chairlift.server.anthropic.message import SIGNATURE, arguments_of, ending
from chairlift.server.anthropic.objects import AssistantMessage, usage_of
from chairlift.server.errors import describe
from chairlift.server.openai.reply import Reply
from chairlift.text.responses.reading.events import CallArguments, CallBegins, CallEnds, Content, Event, Reasoning

_encode = msgspec.json.Encoder().encode
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_START = b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%b}\n\n'
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_END = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_TEXT = b'{"type":"text","text":""}'
_THINKING = b'{"type":"thinking","thinking":"","signature":""}'
_TOOL_USE = b'{"type":"tool_use","id":%b,"name":%b,"input":{}}'
_SIGNED = b'{"type":"signature_delta","signature":%b}' % _encode(SIGNATURE)


class MessageEvents:
    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._has_begun = False
        self._index = 0  # of the block that is open, or of the next one
        self._open: type[Event] | None = None  # the kind of block
        self._arguments: list[str] = []  # of the call that is open
        self._has_called = False
        self._last: Delta | None = None

    def add(self, index: int, delta: Delta) -> bytes:
        if delta.finish is not None:
            self._last = delta
        parts = [part for event in self._reply.events_of(delta) for part in self._told(event)]
        if not self._has_begun:
            self._has_begun = True
            parts.insert(0, self._begin())
        return b"".join(parts)

    def end(self) -> bytes:
        assert self._last is not None
        body = {
            "type": "message_delta",
            "delta": ending(self._reply, self._last.finish, self._last.stop, self._has_called),
            "usage": usage_of(self._reply),
        }
        return b"".join(self._closed()) + _event(b"message_delta", body) + _END

    def fail(self, error: Exception, has_begun: bool) -> bytes:
        if not has_begun:
            raise error
        status, body = describe(error, self._reply.name)
        return _event(b"error", failure_body(error, status, body.error.message, self._reply.name))

    def _begin(self) -> bytes:
        reply = self._reply
        message = AssistantMessage(
            id=reply.id, model=reply.model, content=[], stop_reason=None, stop_sequence=None, usage=usage_of(reply)
        )
        return _event(b"message_start", {"type": "message_start", "message": message}) + _PING

    def _told(self, event: Event) -> Iterator[bytes]:
        match event:
            case Content(text):
                yield from self._opened(Content, _TEXT)
                yield self._delta(b'{"type":"text_delta","text":%b}', text)
            case Reasoning(text):
                yield from self._opened(Reasoning, _THINKING)
                yield self._delta(b'{"type":"thinking_delta","thinking":%b}', text)
            case CallBegins(_, name):
                self._arguments = []
                block = _TOOL_USE % (_encode(self._reply.new_call_id()), _encode(name))
                yield from self._opened(CallBegins, block)
            case CallArguments(_, text):
                self._arguments.append(text)
                yield self._delta(b'{"type":"input_json_delta","partial_json":%b}', text)
            case CallEnds():
                self._has_called |= arguments_of("".join(self._arguments)) is not None
                yield from self._closed()

    def _opened(self, kind: type[Event], block: bytes) -> Iterator[bytes]:
        """Nothing where the text goes on in an open block."""
        if self._open is not kind:
            yield from self._closed()
            self._open = kind
            yield _START % (self._index, block)

    def _closed(self) -> Iterator[bytes]:
        if self._open is None:
            return
        if self._open is Reasoning:
            yield _DELTA % (self._index, _SIGNED)
        yield _STOP % self._index
        self._index += 1
        self._open = None

    def _delta(self, form: bytes, text: str) -> bytes:
        return _DELTA % (self._index, form % _encode(text))


def _event(name: bytes, body: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, _encode(body))
