"""A whole answer as Anthropic's message: blocks in the order in which the model wrote them.

Always: a call whose arguments are no JSON object, as one that was cut, is left out, and no reason to stop.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from chairlift.server.anthropic.objects import AssistantMessage, Block, TextBlock, ThinkingBlock, ToolUseBlock, usage_of
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.requests import ChatRequest
from chairlift.text.responses.reading.events import Content
from chairlift.text.responses.reading.gathered import Piece, Pieces, ToolCall

SIGNATURE = "unsigned"  # of thoughts; clients send it back with them


def message_of(reply: Reply, choices: Sequence[Choice]) -> AssistantMessage:
    [choice] = choices
    events = (event for event, _ in reply.told(choice))
    content = list(_blocks(Pieces(reply.new_call_id).of(events)))
    has_called = any(isinstance(block, ToolUseBlock) for block in content)
    return AssistantMessage(
        id=reply.id,
        model=reply.model,
        content=content,
        **ending(reply, choice.finish, choice.stop, has_called),
        usage=usage_of(reply),
    )


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


def arguments_of(text: str) -> dict[str, Any] | None:
    """None for the arguments of a call that was cut."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return None


def _blocks(pieces: Iterable[Piece]) -> Iterator[Block]:
    for kind, run in groupby(pieces, type):
        if kind is ToolCall:
            yield from _calls(run)
        else:
            text = "".join(piece.text for piece in run if not isinstance(piece, ToolCall))
            yield TextBlock(text) if kind is Content else ThinkingBlock(text, SIGNATURE)


def _calls(pieces: Iterable[Piece]) -> Iterator[ToolUseBlock]:
    for call in pieces:
        if isinstance(call, ToolCall) and (arguments := arguments_of(call.arguments)) is not None:
            yield ToolUseBlock(call.id, call.name, arguments)
