"""Answers that are read for reasoning and calls: as one message, and as the chunks of a stream.

Always: a chunk holds one event. The first one of a call has its index, id, type and name, and the others pieces of its
arguments; the last chunk of a choice has an empty delta and the reason. A body with the older `functions` gets
`function_call` instead of `tool_calls`, of which there is one.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from chairlift.server.answer import Delta
from chairlift.server.openai.chunks import Envelope
from chairlift.server.openai.objects import Call, ChatMessage, Function
from chairlift.server.openai.reply import Choice
from chairlift.text.responses.reading.events import CallArguments, CallBegins, CallEnds, Content, Event, Reasoning
from chairlift.text.responses.reading.gathered import gathered
from chairlift.text.responses.turn import ReadAs

_encode = msgspec.json.Encoder().encode


def read_message(events: Iterable[Event], read_as: ReadAs, is_older: bool) -> ChatMessage:
    found = gathered(events, read_as.new_call_id)
    calls = [Call(id=call.id, function=Function(call.name, call.arguments)) for call in found.calls]
    return ChatMessage(
        "assistant",
        found.content if found.content or not (calls or found.reasoning) else None,
        reasoning_content=found.reasoning or UNSET,
        reasoning=found.reasoning or UNSET,
        tool_calls=UNSET if is_older or not calls else calls,
        function_call=calls[0].function if is_older and calls else UNSET,
    )


def finish_of(choice: Choice, is_older: bool) -> str | None:
    return _finish(choice.finish, any(isinstance(event, CallBegins) for event in choice.events), is_older)


def _finish(finish: str | None, has_called: bool, is_older: bool) -> str | None:
    """An answer that was cut says so, also where it has calls."""
    if finish != "stop" or not has_called:
        return finish
    return "function_call" if is_older else "tool_calls"


class ReadChunks:
    def __init__(self, envelope: Envelope, read_as: ReadAs, is_older: bool) -> None:
        self._envelope, self._read_as, self._is_older = envelope, read_as, is_older
        self._head = envelope.head + b'"delta":'
        self._pending = Choice()  # tokens whose chunk is still to come
        self._is_first = True
        self._has_called = False

    def add(self, delta: Delta) -> bytes:
        if self._envelope.is_plain and not self._is_first and delta.finish is None:
            told = (self._delta(event) for event in delta.events if not isinstance(event, CallEnds))
            return b"".join([self._head + _encode(each) + self._envelope.tail for each in told])
        self._pending.add(delta)
        deltas = [self._delta(event) for event in delta.events if not isinstance(event, CallEnds)]
        if delta.finish is not None:
            deltas.append({})
        return b"".join(
            self._chunk(each, is_last=delta.finish is not None and index == len(deltas) - 1)
            for index, each in enumerate(deltas)
        )

    def _chunk(self, delta: dict[str, Any], is_last: bool) -> bytes:
        """The first chunk of several carries the tokens that made them."""
        news, self._pending = self._pending, Choice(finish=self._pending.finish, stop=self._pending.stop)
        news.finish = _finish(news.finish, self._has_called, self._is_older) if is_last else None
        news.stop = news.stop if is_last else None
        if self._is_first:
            lead = {"role": "assistant", "content": "" if is_last else None}
            delta, self._is_first = lead | delta, False
        return self._envelope.chunk(b'"delta":' + _encode(delta), news)

    def _delta(self, event: Event) -> dict[str, Any]:
        match event:
            case Content(text):
                return {"content": text}
            case Reasoning(text):
                return {"reasoning_content": text, "reasoning": text}
            case CallBegins(index, name):
                self._has_called = True
                call = {"index": index, "id": self._read_as.new_call_id(), "type": "function"}
                return self._called(call, {"name": name, "arguments": ""})
            case CallArguments(index, text):
                return self._called({"index": index}, {"arguments": text})
            case CallEnds():
                return {}

    def _called(self, call: dict[str, Any], function: dict[str, str]) -> dict[str, Any]:
        return {"function_call": function} if self._is_older else {"tool_calls": [{**call, "function": function}]}
