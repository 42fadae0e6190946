"""The output of a response, whole and streamed, a character a token."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chairlift.server.openai.responses.output import Output, Told
from chairlift.text.responses.reading.events import CallArguments, CallBegins, CallEnds, Content, Event, Reasoning
from fakes.http_world import HttpWorld
from fakes.tool_worlds import TOOLS, tool_world
from unit.server.recorded import each_recorded, world_and_body
from unit.text.responses.streams import Recorded, hermes

CALL = hermes(("weather", '{"city": "Bern"}'))
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
_EVENT = re.compile(r"event: (?P<name>\S+)\ndata: (?P<data>.*)\n\n")
_TEXTS = {"output_text": "message", "reasoning_text": "reasoning"}


async def whole(world: HttpWorld, **body: Any) -> Any:
    response = await world.post("/v1/responses", {"input": "Hi", **body})
    assert response.status_code == 200, response.text
    return response.json()


async def streamed(world: HttpWorld, **body: Any) -> list[Any]:
    response = await world.post("/v1/responses", {"input": "Hi", "stream": True, **body})
    assert response.status_code == 200, response.text
    found = list(_EVENT.finditer(response.text))
    assert "".join(each[0] for each in found) == response.text
    told = [json.loads(each["data"]) for each in found]
    assert [each["type"] for each in told] == [each["name"] for each in found]
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    return told


def followed(told: Sequence[Any]) -> Any:
    """The last response of a stream, after a check that its events tell of the same items in order."""
    first, second, *middle, last = told
    assert (first["type"], second["type"]) == ("response.created", "response.in_progress")
    assert first["response"]["status"] == "in_progress"
    items: list[Any] = []
    joined = ""
    for event in middle:
        kind = event["type"].removeprefix("response.")
        assert event["output_index"] == len(items)
        if kind == "output_item.added":
            item, joined = event["item"], ""
            assert item["status"] == "in_progress"
        elif kind == "output_item.done":
            done = event["item"]
            assert {k: done[k] for k in ("id", "type")} == {k: item[k] for k in ("id", "type")}
            field = {"function_call": "arguments", "custom_tool_call": "input"}.get(done["type"])
            assert (done[field] if field else done["content"][0]["text"]) == joined
            items.append(done)
        else:
            assert event["item_id"] == item["id"]
            joined += event.get("delta", "")
            if kind in ("output_text.done", "reasoning_text.done"):
                assert event["text"] == joined
                assert _TEXTS[kind.removesuffix(".done")] == item["type"]
            if kind == "function_call_arguments.done":
                assert (event["arguments"], event["name"]) == (joined, item["name"])
            if kind == "custom_tool_call_input.done":
                assert event["input"] == joined
    assert last["response"]["output"] == items
    assert last["type"] == f"response.{last['response']['status']}"
    return last["response"]


def without_ids(response: Any) -> Any:
    output = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in response["output"]]
    return {k: v for k, v in response.items() if k not in ("id", "created_at", "completed_at")} | {"output": output}


def check(response: Any, recorded: Recorded) -> None:
    texts = {"message": "", "reasoning": ""}
    for item in response["output"]:
        if item["type"] in texts:
            texts[item["type"]] += item["content"][0]["text"]
    assert texts == {"message": recorded.content, "reasoning": recorded.reasoning}
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == list(recorded.calls)
    assert all(item["status"] == "completed" for item in response["output"])
    assert len({item["id"] for item in response["output"]}) == len(response["output"])


@each_recorded
async def test_a_recorded_answer_is_the_same_whole_and_streamed(recorded: Recorded) -> None:
    world, body = world_and_body(recorded)
    body["tools"] = FLAT
    response = await whole(world, **body)
    check(response, recorded)
    assert response["status"] == "completed"
    assert without_ids(followed(await streamed(world, **body))) == without_ids(response)


async def test_text_alone_is_one_message() -> None:
    world = HttpWorld("Hello there")
    response = await whole(world)
    [item] = response["output"]
    assert item | {"id": ""} == {
        "id": "",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello there", "annotations": [], "logprobs": []}],
    }
    assert without_ids(followed(await streamed(world))) == without_ids(response)


@pytest.mark.parametrize("asked", [{}, {"top_logprobs": 2}])
async def test_a_whole_answer_is_put_together_by_the_piece_not_by_the_token(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, take = [], Output.take

    def noting(output: Output, event: Event, logprobs: list[Any]) -> Iterator[Told]:
        taken.append(type(event))
        return take(output, event, logprobs)

    monkeypatch.setattr(Output, "take", noting)
    world = tool_world("hermes", "<think>\nHm, well.\n</think>\n\nLet me see." + CALL)
    await whole(world, tools=FLAT, **asked)
    assert taken == [Reasoning, Content, CallBegins, CallArguments, CallEnds]
    taken.clear()
    await whole(HttpWorld("Hello there"), **asked)
    assert taken == [Content]


async def test_an_empty_answer_has_an_empty_message() -> None:
    world = HttpWorld("")
    response = followed(await streamed(world))
    assert [item["content"][0]["text"] for item in response["output"]] == [""]
    assert without_ids(await whole(world)) == without_ids(response)


async def test_an_answer_that_is_cut_says_so() -> None:
    world = HttpWorld("Hello there")
    for response in (await whole(world, max_output_tokens=2), followed(await streamed(world, max_output_tokens=2))):
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert [item["status"] for item in response["output"]] == ["incomplete"]


async def test_a_call_that_is_cut_says_so() -> None:
    world = tool_world("hermes", CALL)
    limit = CALL.index("Bern")
    for response in (
        await whole(world, tools=FLAT, max_output_tokens=limit),
        followed(await streamed(world, tools=FLAT, max_output_tokens=limit)),
    ):
        [item] = response["output"]
        assert (item["type"], item["status"], item["arguments"]) == ("function_call", "incomplete", '{"city": "')


async def test_arguments_that_are_nested_too_deeply_are_told() -> None:
    world = tool_world("hermes", hermes(("weather", '{"tags": ' + "[" * 2000)))
    response = await whole(world, tools=FLAT)
    assert response["output"][0]["arguments"].startswith('{"tags": [[[')
    assert without_ids(followed(await streamed(world, tools=FLAT))) == without_ids(response)


async def test_usage_counts_tokens() -> None:
    world = tool_world("hermes", "<think>\nHm.\n</think>\n\nYes")
    usage = (await whole(world))["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]
    assert usage["input_tokens_details"]["cached_tokens"] == 0


async def test_a_response_tells_what_was_asked() -> None:
    world = tool_world("hermes", "Yes")
    asked = {
        "instructions": "Be brief",
        "max_output_tokens": 50,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.25,
        "tools": FLAT,
        "tool_choice": "auto",
        "user": "me",
    }
    response = await whole(world, **asked)
    told = asked | {"tools": [{"description": None, "parameters": None, "strict": None} | tool for tool in FLAT]}
    assert {name: response[name] for name in asked} == told
    assert (response["object"], response["store"], response["truncation"]) == ("response", False, "disabled")
    assert response["previous_response_id"] is response["error"] is response["incomplete_details"] is None


async def test_long_instructions_are_not_told_back() -> None:
    world = HttpWorld("Yes", room=200_000, max_body_bytes=200_000)
    response = await whole(world, instructions="a " * 40_000)
    assert response["instructions"] is None


async def test_a_long_choice_of_tools_is_not_told_back() -> None:
    world = tool_world("hermes", "Yes")
    choice = {"type": "allowed_tools", "mode": "auto", "tools": FLAT, "why": "a" * 70_000}
    assert (await whole(world, tools=FLAT, tool_choice=choice))["tool_choice"] == "auto"
    assert (await whole(world, tools=FLAT, tool_choice=choice | {"why": ""}))["tool_choice"]["tools"] == FLAT


@pytest.mark.parametrize("asked", [{"top_logprobs": 2}, {"include": ["message.output_text.logprobs"]}])
async def test_logprobs_come_with_their_text(asked: dict[str, Any]) -> None:
    world = HttpWorld("Hello there")
    response = await whole(world, **asked)
    [part] = response["output"][0]["content"]
    assert "".join(each["token"] for each in part["logprobs"]) == "Hello there"
    assert all(len(each["top_logprobs"]) == asked.get("top_logprobs", 0) for each in part["logprobs"])
    assert without_ids(followed(await streamed(world, **asked))) == without_ids(response)


async def test_logprobs_of_content_come_behind_reasoning_and_calls() -> None:
    world = tool_world("hermes", "<think>\nHm.\n</think>\n\nWell." + CALL)
    asked = {"tools": FLAT, "top_logprobs": 1}
    response = await whole(world, **asked)
    [part] = response["output"][1]["content"]
    assert "".join(each["token"] for each in part["logprobs"]).endswith("Well.")
    assert without_ids(followed(await streamed(world, **asked))) == without_ids(response)


async def test_a_part_begins_empty() -> None:
    told = await streamed(HttpWorld("Hello there"), top_logprobs=2)
    [part] = [each["part"] for each in told if each["type"] == "response.content_part.added"]
    assert part == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


async def test_a_failure_in_the_middle_is_told() -> None:
    world = HttpWorld("Hello there")
    world.client.fails_at = 2
    *_, last = await streamed(world)
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert last["response"]["error"]["message"]
