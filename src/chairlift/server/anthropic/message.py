"""A whole answer as Anthropic's message: blocks in the order in which the model wrote them.

Always: a call that was cut before its arguments were a JSON object is left out; the reason to stop tells of the cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from chairlift.server.anthropic.objects import AssistantMessage, Block, TextBlock, ThinkingBlock, ToolUseBlock, usage_of
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.requests import ChatRequest
from chairlift.text.responses.reading.events import CallArguments, CallBegins, CallEnds, Content, Event, Reasoning

SIGNATURE = "unsigned"  # of thoughts; clients send it back with them


def message_of(reply: Reply, choices: Sequence[Choice]) -> AssistantMessage:
    [choice] = choices
    events = choice.events if reply.read_as is not None else text_events("".join(choice.text))
    has_called = any(isinstance(event, CallBegins) for event in events)
    return AssistantMessage(
        id=reply.id,
        model=reply.model,
        content=list(_blocks(reply, events)),
        **ending(reply, choice.finish, choice.stop, has_called),
        usage=usage_of(reply),
    )


def text_events(text: str) -> Sequence[Event]:
    """Of an answer that is not read."""
    return [Content(text)] if text else []


def ending(reply: Reply, finish: str | None, stop: str | int | None, has_called: bool) -> dict[str, Any]:
    """An answer that was cut says so, also where it has calls."""
    if isinstance(stop, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    if finish == "stop":
        return {"stop_reason": "tool_use" if has_called else "end_turn", "stop_sequence": None}
    assert isinstance(reply.request, ChatRequest)
    is_full = reply.params.max_tokens != reply.request.max_completion_tokens
    reasons = {"length": "model_context_window_exceeded" if is_full else "max_tokens"}
    return {"stop_reason": reasons.get(str(finish)), "stop_sequence": None}


def _blocks(reply: Reply, events: Iterable[Event]) -> Iterator[Block]:
    for _, group in groupby(events, _block_of):
        first, *rest = group
        match first:
            case Content():
                yield TextBlock(_joined([first, *rest]))
            case Reasoning():
                yield ThinkingBlock(_joined([first, *rest]), SIGNATURE)
            case CallBegins(_, name):
                arguments = _arguments(_joined(rest))
                if arguments is not None:
                    assert reply.read_as is not None
                    yield ToolUseBlock(reply.read_as.new_call_id(), name, arguments)


def _block_of(event: Event) -> tuple[type[Event], int]:
    match event:
        case CallBegins(index) | CallArguments(index) | CallEnds(index):
            return CallBegins, index
    return type(event), 0


def _joined(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Content | Reasoning | CallArguments))


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return None
