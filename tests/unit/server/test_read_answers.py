"""Answers with calls and reasoning, whole and streamed, a character a token."""

import json
import re
from typing import Any

import pytest

from chairlift.server.request_log.log import RequestLog
from fakes.http_world import HttpWorld
from fakes.sse import events
from fakes.tool_worlds import HI, TOOLS, tool_world
from unit.server.recorded import each_recorded, world_and_body
from unit.text.responses.streams import Recorded, hermes

CALL = hermes(("weather", '{"city": "Bern"}'))
SAID = {"role": "assistant", "refusal": None}
THINKS = "<think>\nHm.\n</think>\n\n"


async def ask(world: HttpWorld, **body: Any) -> Any:
    response = await world.post("/v1/chat/completions", {"messages": HI, **body})
    assert response.status_code == 200, response.text
    if not body.get("stream"):
        return response.json()
    *parts, done = events(response.text)
    assert done == "[DONE]"
    return parts


def message_of(parts: list[Any], index: int = 0) -> dict[str, Any]:
    """A stream's message, put together as OpenAI's clients do."""
    made: dict[str, Any] = {"content": None}
    calls: dict[int, Any] = {}
    for part in parts:
        for choice in part["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            for name in ("content", "reasoning_content", "reasoning"):
                if delta.get(name) is not None:
                    made[name] = (made.get(name) or "") + delta[name]
            for call in delta.get("tool_calls", ()):
                if call["index"] not in calls:
                    assert call.keys() == {"index", "id", "type", "function"}
                    assert call["function"].keys() == {"name", "arguments"}
                    calls[call["index"]] = call
                    continue
                assert call.keys() == {"index", "function"}
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            made["finish_reason"] = choice["finish_reason"]
    assert list(calls) == list(range(len(calls)))
    return made | ({"tool_calls": list(calls.values())} if calls else {})


def check(message: dict[str, Any], recorded: Recorded) -> None:
    assert (message["content"] or "") == recorded.content
    assert message.get("reasoning_content", "") == message.get("reasoning", "") == recorded.reasoning
    calls = message.get("tool_calls", [])
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == list(recorded.calls)
    assert all(call["type"] == "function" for call in calls)
    form = "[A-Za-z0-9]{9}" if recorded.family.startswith("mistral") else "call_[A-Za-z0-9]{24}"
    assert all(re.fullmatch(form, call["id"]) for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)


@each_recorded
async def test_a_recorded_answer_is_the_same_whole_and_streamed(recorded: Recorded) -> None:
    world, body = world_and_body(recorded)
    body["tools"] = TOOLS
    [choice] = (await ask(world, **body))["choices"]
    check(choice["message"], recorded)
    finish = "tool_calls" if recorded.calls else "stop"
    assert choice["finish_reason"] == finish
    streamed = message_of(await ask(world, stream=True, **body))
    check(streamed, recorded)
    assert streamed["finish_reason"] == finish


async def test_a_call_alone_has_no_content_and_its_deltas_are_openai_s() -> None:
    world = tool_world("hermes", CALL)
    message = (await ask(world, tools=TOOLS))["choices"][0]["message"]
    assert message.keys() == {"role", "content", "refusal", "tool_calls"} and message["content"] is None
    deltas = [part["choices"][0]["delta"] for part in await ask(world, tools=TOOLS, stream=True)]
    first, *pieces, last = deltas
    [call] = first.pop("tool_calls")
    assert first == {"role": "assistant", "content": None}
    assert call == {"index": 0, "id": call["id"], "type": "function", "function": {"name": "weather", "arguments": ""}}
    assert all(
        piece == {"tool_calls": [{"index": 0, "function": piece["tool_calls"][0]["function"]}]} for piece in pieces
    )
    assert "".join(piece["tool_calls"][0]["function"]["arguments"] for piece in pieces) == '{"city": "Bern"}'
    assert last == {}


async def test_samples_are_read_one_by_one() -> None:
    world = tool_world("hermes", THINKS + CALL)
    whole = await ask(world, tools=TOOLS, n=2)
    parts = await ask(world, tools=TOOLS, n=2, stream=True)
    messages = [choice["message"] for choice in whole["choices"]] + [message_of(parts, index) for index in (0, 1)]
    assert [message["reasoning_content"] for message in messages] == ["Hm."] * 4
    assert len({message["tool_calls"][0]["id"] for message in messages}) == 4


async def test_usage_tells_tokens_of_reasoning() -> None:
    world = tool_world("hermes", THINKS + "Yes.")
    usage = (await ask(world))["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": len("Hm.\n</think>\n") + 1}
    *_, last = await ask(world, stream=True, stream_options={"include_usage": True})
    assert last["usage"] == usage


async def test_an_answer_cut_inside_a_call_says_length() -> None:
    world = tool_world("hermes", CALL)
    [choice] = (await ask(world, tools=TOOLS, max_tokens=len(CALL) - 20))["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"city')


async def test_a_stop_string_is_looked_for_in_content_alone() -> None:
    world = tool_world("hermes", "<think>a END b</think>One. END Two.")
    for stream in (False, True):
        answer = await ask(world, stop=["END"], stream=stream)
        message = message_of(answer) if stream else answer["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("a END b", "One. ")
    assert world.client.requests[-1].aborts  # the rest is not made
    world = tool_world("hermes", "EN" + CALL + "D END x")
    message = (await ask(world, tools=TOOLS, stop=["END"]))["choices"][0]["message"]
    assert message["content"] == "END "
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "Bern"}


async def test_logprobs_and_token_ids_stay_one_for_each_token() -> None:
    world = tool_world("hermes", THINKS + "Well.\n" + CALL)
    body = {"tools": TOOLS, "logprobs": True, "return_token_ids": True}
    whole = (await ask(world, **body))["choices"][0]
    assert whole["token_ids"] == world.answer
    assert len(whole["logprobs"]["content"]) == len(world.answer)
    choices = [part["choices"][0] for part in await ask(world, stream=True, **body)]
    assert [token for choice in choices for token in choice["token_ids"]] == world.answer
    assert [entry for choice in choices for entry in choice["logprobs"]["content"]] == whole["logprobs"]["content"]


async def test_without_tools_calls_are_text_and_reasoning_is_read() -> None:
    world = tool_world("hermes", THINKS + CALL)
    for body in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        message = (await ask(world, **body))["choices"][0]["message"]
        assert message == SAID | {"content": CALL, "reasoning_content": "Hm.", "reasoning": "Hm."}
        assert world.client.requests[-1].params.structured_outputs is None


async def test_a_model_without_marks_of_reasoning_writes_all_of_it_as_content() -> None:
    world = HttpWorld(THINKS + CALL)
    answer = await ask(world)
    assert answer["choices"][0]["message"] == SAID | {"content": THINKS + CALL}
    assert "completion_tokens_details" not in answer["usage"]


async def test_special_tokens_show_only_where_they_are_asked_for() -> None:
    world = tool_world("mistral", "[TOOL_CALLS]now[ARGS]{}<|im_start|>")
    message = (await ask(world, tools=TOOLS))["choices"][0]["message"]
    assert message["content"] is None and len(message["tool_calls"]) == 1
    world = tool_world("mistral", "a<|im_start|>b[TOOL_CALLS]now[ARGS]{}")
    message = (await ask(world, tools=TOOLS, skip_special_tokens=False))["choices"][0]["message"]
    assert message["content"].startswith("a<|im_start|>b")


async def test_the_older_functions_get_a_function_call() -> None:
    world = tool_world("hermes", CALL)
    functions = [tool["function"] for tool in TOOLS]
    [choice] = (await ask(world, functions=functions))["choices"]
    wanted = {"name": "weather", "arguments": '{"city": "Bern"}'}
    assert choice["message"] == SAID | {"content": None, "function_call": wanted}
    assert choice["finish_reason"] == "function_call"
    parts = [part["choices"][0] for part in await ask(world, functions=functions, stream=True)]
    calls = [part["delta"]["function_call"] for part in parts if "function_call" in part["delta"]]
    assert calls[0] == {"name": "weather", "arguments": ""}
    assert "".join(call["arguments"] for call in calls) == wanted["arguments"]
    assert parts[-1]["finish_reason"] == "function_call"


async def test_a_request_log_keeps_what_the_model_wrote(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "chairlift")
    log = RequestLog(model="small", logs=True, text_of=lambda ids: "")
    await ask(tool_world("hermes", THINKS + CALL, request_log=log), tools=TOOLS)
    [line] = [record.__dict__["fields"] for record in caplog.records if "fields" in record.__dict__]
    assert line["output"] == [THINKS + CALL]
