"""The output of a response as the model writes it: items, and the events that tell of them.

Always: items come one after another, each from added to done; the deltas of an item joined are its text or arguments.
"""

import secrets
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from chairlift.server.openai.responses.custom import InputText
from chairlift.server.openai.responses.namespaces import Namespaced
from chairlift.text.responses.reading.events import CallArguments, CallBegins, CallEnds, Content, Event, Reasoning

Told = dict[str, Any]  # an event of the stream, without its number
_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}


class Output:
    """`items`: those that are done."""

    def __init__(self, new_call_id: Callable[[], str], namespaced: Namespaced, custom: Collection[str]) -> None:
        self.items: list[dict[str, Any]] = []
        self._new_call_id, self._namespaced, self._custom = new_call_id, namespaced, custom
        self._input: InputText | None = None  # of a call of a custom tool
        self._open: dict[str, Any] | None = None  # the item in progress, its text still apart
        self._pieces: list[str] = []
        self._logprobs: list[Any] = []

    def take(self, event: Event, logprobs: list[Any]) -> Iterator[Told]:
        """`logprobs`: of the tokens that made it, told with content alone."""
        match event:
            case Content(text):
                yield from self._begin("message")
                self._logprobs += logprobs
                yield self._delta("response.output_text.delta", text) | {"content_index": 0, "logprobs": logprobs}
            case Reasoning(text):
                yield from self._begin("reasoning")
                yield self._delta("response.reasoning_text.delta", text) | {"content_index": 0}
            case CallBegins(_, name) if name in self._custom:
                yield from self._done("completed")
                self._input = InputText()
                yield from self._begin("custom_tool_call", call_id=self._new_call_id(), name=name, input="")
            case CallArguments(_, text) if self._input is not None:
                yield from self._given(self._input.add(text))
            case CallEnds() if self._input is not None:
                rest, is_whole = self._input.end()
                yield from self._given(rest)
                yield from self._done("completed" if is_whole else "incomplete")
            case CallBegins(_, name):
                yield from self._done("completed")
                yield from self._begin("function_call", call_id=self._new_call_id(), **self._named(name), arguments="")
            case CallArguments(_, text):
                yield self._delta("response.function_call_arguments.delta", text)
            case CallEnds():
                yield from self._done("completed" if _is_json(self._pieces) else "incomplete")

    def end(self, is_cut: bool) -> Iterator[Told]:
        """An answer without any text has an empty message."""
        if not self.items and self._open is None:
            yield from self._begin("message")
        yield from self._done("incomplete" if is_cut else "completed")

    def _begin(self, kind: str, **fields: str) -> Iterator[Told]:
        if self._open is not None and self._open["type"] == kind:
            return
        yield from self._done("completed")
        item: dict[str, Any] = {"id": _PREFIXES[kind] + secrets.token_hex(16), "type": kind, "status": "in_progress"}
        if kind == "message":
            item |= {"role": "assistant", "content": []}
        elif kind == "reasoning":
            item |= {"summary": [], "content": []}
        self._open = item | fields
        yield {"type": "response.output_item.added", "output_index": len(self.items), "item": self._open}
        if kind in ("message", "reasoning"):
            yield self._told("response.content_part.added", content_index=0, part=self._part("", []))

    def _named(self, name: str) -> dict[str, str]:
        """As the client knows the function."""
        if name not in self._namespaced:
            return {"name": name}
        namespace, short = self._namespaced[name]
        return {"name": short, "namespace": namespace}

    def _delta(self, kind: str, text: str) -> Told:
        self._pieces.append(text)
        return self._told(kind, delta=text)

    def _given(self, text: str) -> Iterator[Told]:
        """A piece of the input of a custom tool."""
        if text:
            yield self._delta("response.custom_tool_call_input.delta", text)

    def _done(self, status: str) -> Iterator[Told]:
        if self._open is None:
            return
        item, text = self._open, "".join(self._pieces)
        if item["type"] == "function_call":
            yield self._told("response.function_call_arguments.done", name=item["name"], arguments=text)
            item = item | {"arguments": text}
        elif item["type"] == "custom_tool_call":
            yield self._told("response.custom_tool_call_input.done", input=text)
            item, self._input = item | {"input": text}, None
        else:
            part = self._part(text, self._logprobs)
            done = {"text": text, "logprobs": self._logprobs} if item["type"] == "message" else {"text": text}
            kind = "output_text" if item["type"] == "message" else "reasoning_text"
            yield self._told(f"response.{kind}.done", content_index=0, **done)
            yield self._told("response.content_part.done", content_index=0, part=part)
            item = item | {"content": [part]}
        item = item | {"status": status}
        yield {"type": "response.output_item.done", "output_index": len(self.items), "item": item}
        self.items.append(item)
        self._open, self._pieces, self._logprobs = None, [], []

    def _part(self, text: str, logprobs: list[Any]) -> dict[str, Any]:
        assert self._open is not None
        if self._open["type"] == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _told(self, kind: str, **fields: Any) -> Told:
        assert self._open is not None
        return {"type": kind, "item_id": self._open["id"], "output_index": len(self.items), **fields}


def _is_json(pieces: list[str]) -> bool:
    """False for the arguments of a call in which the answer was cut."""
    try:
        msgspec.json.decode("".join(pieces))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
