"""The events of a streamed response as bytes, numbered from 0."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import msgspec

from chairlift.core.score import TokenScore
from chairlift.server.answer import Delta
from chairlift.server.errors import describe
from chairlift.server.openai.logprobs import chat_logprobs
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.responses.output import Output, Told
from chairlift.server.openai.responses.response import Echo, ResponseObject
from chairlift.text.responses.reading.events import CallBegins, CallEnds, Event
from chairlift.text.tokenizer import Tokenizer

_encode = msgspec.json.Encoder().encode
_AT_ONCE = 16  # scores
_LARGE = 65_536  # bytes


class ResponseEvents:
    def __init__(self, reply: Reply, tokenizer: Tokenizer, echo: Echo) -> None:
        self._reply, self._tokenizer, self._echo = reply, tokenizer, echo
        self._output = Output(reply.new_call_id, echo.namespaced, echo.custom)
        self._pending: list[TokenScore | None] = []  # of tokens that no event has told of
        self._num_sent = 0
        self._finish: str | None = None

    def add(self, index: int, delta: Delta) -> bytes | Iterator[bytes]:
        told = self._begun() if not self._num_sent else []
        self._pending.append(delta.score)
        for event in self._reply.events_of(delta):
            told += self._output.take(event, self._logprobs())
        if delta.finish is not None:
            self._finish = delta.finish
            told += self._output.end(is_cut=delta.finish == "length")
            if self._reply.params.logprobs is not None:  # all of them, several times
                return self._last(told)
        return self._bytes(told)

    def end(self) -> bytes:
        return b"" if self._reply.params.logprobs is not None else self._bytes([self._ended()])

    def _last(self, told: list[Told]) -> Iterator[bytes]:
        for each in self._each(told):
            yield from _sliced(each)
        for each in self._each([self._ended()]):
            yield from _sliced(each)

    def _ended(self) -> Told:
        response = self._echo.ended(self._reply, self._output.items, self._finish)
        return _of_response(response.status, response)

    def fail(self, error: Exception, has_begun: bool) -> bytes:
        if not has_begun:
            raise error
        message = describe(error, self._reply.name).body.error.message
        return self._bytes([_of_response("failed", self._echo.failed(self._reply, self._output.items, message))])

    def _begun(self) -> list[Told]:
        response = self._echo.begun(self._reply)
        return [_of_response("created", response), _of_response("in_progress", response)]

    def _logprobs(self) -> list[msgspec.Raw]:
        scores, self._pending = self._pending, []
        return logprobs_of(self._reply, self._tokenizer, scores)

    def _bytes(self, told: Iterable[Told]) -> bytes:
        return b"".join(self._each(told))

    def _each(self, told: Iterable[Told]) -> Iterator[bytes]:
        for each in told:
            numbered = {"type": each["type"], "sequence_number": self._num_sent} | each
            yield b"event: %b\ndata: %b\n\n" % (each["type"].encode(), _encode(numbered))
            self._num_sent += 1


def whole_pieces(reply: Reply, tokenizer: Tokenizer, echo: Echo, choice: Choice) -> Iterator[bytes]:
    """The JSON of a whole response; its output is as a stream would have told it, but for the number of pieces. What is
    empty lets others run."""
    output, num_told = Output(reply.new_call_id, echo.namespaced, echo.custom), 0
    for _, run in groupby(reply.told(choice), lambda each: type(each[0])):
        events, (*_, num_tokens) = zip(*run, strict=True)
        logprobs = list[msgspec.Raw]()
        for first in range(num_told, num_tokens, _AT_ONCE) if reply.params.logprobs is not None else ():
            scores = choice.scores[first : min(first + _AT_ONCE, num_tokens)]
            logprobs += logprobs_of(reply, tokenizer, scores)
            yield b""
        _drain(output.take(_joined(events), logprobs))
        num_told = num_tokens
    _drain(output.end(is_cut=choice.finish == "length"))
    yield from _sliced(_encode(echo.ended(reply, output.items, choice.finish)))


def _sliced(data: bytes) -> Iterator[bytes]:
    return (data[first : first + _LARGE] for first in range(0, len(data), _LARGE))


def logprobs_of(reply: Reply, tokenizer: Tokenizer, scores: Sequence[TokenScore | None]) -> list[msgspec.Raw]:
    """Encoded, which takes a third of the room: they are kept, and told several times."""
    if reply.params.logprobs is None:
        return []
    return [msgspec.Raw(_encode(each)) for each in chat_logprobs(tokenizer, scores).content]


def _joined(events: Sequence[Event]) -> Event:
    """Neighbours of one kind as one; what begins or ends a call has no such neighbours."""
    first = events[0]
    if isinstance(first, CallBegins | CallEnds):
        return first
    return replace(first, text="".join(each.text for each in events if not isinstance(each, CallBegins | CallEnds)))


def _drain(told: Iterator[Told]) -> None:
    for _ in told:
        pass


def _of_response(kind: str, response: ResponseObject) -> Told:
    return {"type": f"response.{kind}", "response": response}
