"""Answers as Anthropic's messages, whole and streamed, a character a token."""

import re
from itertools import pairwise
from typing import Any

import pytest

from fakes.anthropic_api import HI, TOOLS, ask, read_events
from fakes.http_world import HttpWorld
from fakes.tool_worlds import tool_world
from unit.server.recorded import each_recorded, world_and_body
from unit.text.responses.streams import Recorded, hermes

CALL = hermes(("weather", '{"city": "Bern"}'))
THINKS = "<think>\nHm.\n</think>\n\n"
HM = {"type": "thinking", "thinking": "Hm.", "signature": "unsigned"}


async def streamed_events(world: HttpWorld, **body: Any) -> list[dict[str, Any]]:
    response = await world.post("/v1/messages", {"max_tokens": 100, "messages": HI, "stream": True, **body})
    assert response.headers["content-type"].startswith("text/event-stream")
    return read_events(response.text)


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{**block, "id": None} if "id" in block else block for block in message["content"]]
    return message | {"id": None, "content": content}


def check(message: dict[str, Any], recorded: Recorded) -> None:
    blocks = message["content"]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    assert "".join(block["text"] for block in blocks if block["type"] == "text") == recorded.content
    assert "".join(block["thinking"] for block in blocks if block["type"] == "thinking") == recorded.reasoning
    assert [(call["name"], call["input"]) for call in calls] == list(recorded.calls)
    form = "[A-Za-z0-9]{9}" if recorded.family.startswith("mistral") else "call_[A-Za-z0-9]{24}"
    assert all(re.fullmatch(form, call["id"]) for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)
    assert message["stop_reason"] == ("tool_use" if recorded.calls else "end_turn")
    assert all(first["type"] != second["type"] or second["type"] == "tool_use" for first, second in pairwise(blocks))


@each_recorded
async def test_a_recorded_answer_is_the_same_whole_and_streamed(recorded: Recorded) -> None:
    world, body = world_and_body(recorded)
    body["tools"] = TOOLS
    whole, streamed = await ask(world, **body), await ask(world, stream=True, **body)
    check(whole, recorded)
    check(streamed, recorded)
    assert without_ids(whole) == without_ids(streamed)


async def test_a_message_has_anthropic_s_fields() -> None:
    world = tool_world("hermes", THINKS + "Well.\n" + CALL)
    world.client.num_cached = 2
    message = await ask(world, tools=TOOLS)
    assert re.fullmatch("msg_[0-9a-f]{32}", message.pop("id"))
    call_id = message["content"][2].pop("id")
    assert call_id.startswith("call_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "small",
        "content": [
            HM,
            {"type": "text", "text": "Well."},
            {"type": "tool_use", "name": "weather", "input": {"city": "Bern"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": len(world.client.requests[-1].prompt) - 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 2,
            "output_tokens": len(world.answer),
            "output_tokens_details": {"thinking_tokens": len("Hm.\n</think>\n") + 1},
            "service_tier": "standard",
        },
    }


async def test_the_events_of_a_stream() -> None:
    world = tool_world("hermes", "<think>a</think>b" + hermes(("now", "{}")))
    world.client.num_cached = 2
    events = await streamed_events(world, tools=TOOLS)
    start = events[0]["message"]
    assert start["usage"]["cache_read_input_tokens"] == 2
    assert start["usage"]["input_tokens"] == len(world.client.requests[-1].prompt) - 2
    assert start["usage"]["output_tokens"] == 1
    assert events[1] == {"type": "ping"}
    call_id = events[9]["content_block"]["id"]
    assert events[2:] == [
        {"type": "content_block_start", "index": 0,
         "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "a"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "unsigned"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2,
         "content_block": {"type": "tool_use", "id": call_id, "name": "now", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "}"}},
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
         "usage": events[-2]["usage"]},
        {"type": "message_stop"},
    ]  # fmt: skip
    assert events[-2]["usage"]["output_tokens"] == len(world.answer)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "reason", "stop", "said"),
    [
        ({}, "end_turn", None, "One. Two."),
        ({"max_tokens": 4}, "max_tokens", None, "One."),
        ({"stop_sequences": ["x", " Tw"]}, "stop_sequence", " Tw", "One."),
    ],
)
async def test_the_reason_to_stop(body: Any, reason: str, stop: str | None, said: str, stream: bool) -> None:
    message = await ask(tool_world("hermes", "One. Two."), stream=stream, **body)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stop)
    assert message["content"] == [{"type": "text", "text": said}]


async def test_a_full_context_is_told_apart_from_max_tokens() -> None:
    world = HttpWorld("a b c d e f g h i j k l m n o p q r s t u v w x y z" * 4, room=40)
    assert (await ask(world, max_tokens=1000))["stop_reason"] == "model_context_window_exceeded"
    assert (await ask(world, max_tokens=3))["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_token_ends_a_turn(stream: bool) -> None:
    world = tool_world("hermes", "One.")
    message = await ask(world, stop_token_ids=[world.answer[2]], stream=stream)
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_without_text_has_no_blocks(stream: bool) -> None:
    message = await ask(tool_world("hermes", ""), stream=stream)
    assert (message["content"], message["stop_reason"]) == ([], "end_turn")


async def test_a_call_that_was_cut_is_left_out_of_a_whole_answer() -> None:
    world = tool_world("hermes", "Well.\n" + CALL + "\n" + CALL)
    cut = len("Well.\n" + CALL + "\n" + CALL) - 20
    message = await ask(world, tools=TOOLS, max_tokens=cut)
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    assert message["stop_reason"] == "max_tokens"
    events = await streamed_events(world, tools=TOOLS, max_tokens=cut)
    assert [event["type"] for event in events[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[-3]["index"] == 2


async def test_a_call_that_the_model_broke_off_is_no_reason_to_stop() -> None:
    broken = CALL[: CALL.index("Bern")]
    for said, kinds, reason in (("", ["text"], "end_turn"), (CALL + "\n", ["text", "tool_use"], "tool_use")):
        world = tool_world("hermes", "Well.\n" + said + broken)
        message = await ask(world, tools=TOOLS)
        assert ([block["type"] for block in message["content"]], message["stop_reason"]) == (kinds, reason)
        events = await streamed_events(world, tools=TOOLS, max_tokens=4096)
        assert events[-2]["delta"]["stop_reason"] == reason


async def test_without_tools_calls_are_text() -> None:
    for body in ({}, {"tools": TOOLS, "tool_choice": {"type": "none"}}):
        message = await ask(tool_world("hermes", THINKS + CALL), **body)
        assert message["content"] == [HM, {"type": "text", "text": CALL}]
        assert message["stop_reason"] == "end_turn"


@pytest.mark.parametrize("stream", [False, True])
async def test_of_a_model_without_marks_of_reasoning_all_is_text(stream: bool) -> None:
    message = await ask(HttpWorld(THINKS + "Yes."), max_tokens=200, stream=stream)
    assert message["content"] == [{"type": "text", "text": THINKS + "Yes."}]
    assert "output_tokens_details" not in message["usage"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_before_the_first_token_has_its_status(stream: bool) -> None:
    world = HttpWorld()
    world.client.fails_at = 0
    response = await world.post("/v1/messages", {"max_tokens": 9, "messages": HI, "stream": stream})
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "api_error"


async def test_an_error_in_a_stream_is_an_event() -> None:
    world = HttpWorld()
    world.client.fails_at = 3
    *_, last = await streamed_events(world)
    assert last.keys() == {"type", "error", "request_id"} and last["type"] == "error"
    assert last["error"]["type"] == "api_error"
