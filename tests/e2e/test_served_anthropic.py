"""Anthropic's official client against the embedded model."""

from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import pytest
from pydantic import BaseModel, ConfigDict

from fakes.http_world import HttpWorld
from fakes.served import Served
from fakes.tool_worlds import tool_world

pytestmark = pytest.mark.slow
KEY = "a-secret-of-alice"
MODEL = "SmolLM2-135M-Instruct"
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris? Use a tool."}]
COLOURS: Any = [{"role": "user", "content": "Name three colours."}]
TOOLS: Any = [
    {
        "name": "weather",
        "description": "The weather of a city",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
        "strict": True,
    },
    {"name": "now", "input_schema": {"type": "object", "additionalProperties": False}},
]
ONE: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}


class Event(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Literal["meeting", "party"]
    day: Literal["Monday", "Friday"]


@pytest.fixture(scope="module")
def client(embedded: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=embedded.url, api_key="none", max_retries=0) as client:
        yield client


def test_create(client: anthropic.Anthropic) -> None:
    message = client.messages.create(
        model=MODEL, max_tokens=12, messages=COLOURS, system="Be brief.", extra_body={"temperature": 0}
    )
    [block] = message.content
    assert block.type == "text" and block.text
    assert (message.role, message.model, message.stop_reason) == ("assistant", MODEL, "max_tokens")
    assert message.usage.output_tokens == 12 and message.usage.input_tokens > 0


def test_a_stream_is_the_whole_answer(client: anthropic.Anthropic) -> None:
    asked: Any = {"model": MODEL, "max_tokens": 20, "messages": COLOURS}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text == text
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    total = [each.usage.input_tokens + each.usage.cache_read_input_tokens for each in (whole, final)]
    assert total[0] == total[1]


def test_raw_events(client: anthropic.Anthropic) -> None:
    events = client.messages.create(model=MODEL, max_tokens=3, messages=COLOURS, stream=True)
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True}, ONE])
def test_a_call_that_must_come_has_valid_arguments(client: anthropic.Anthropic, choice: Any) -> None:
    message = client.messages.create(model=MODEL, max_tokens=80, messages=QUESTION, tools=TOOLS, tool_choice=choice)
    [call] = message.content
    assert message.stop_reason == "tool_use" and call.type == "tool_use" and call.id
    if choice is ONE or call.name == "weather":
        assert isinstance(call.input["city"], str) and call.input["days"] <= 9


def test_a_streamed_call_is_the_whole_one(client: anthropic.Anthropic) -> None:
    asked: Any = {
        "model": MODEL, "messages": QUESTION, "tools": TOOLS, "tool_choice": ONE, "max_tokens": 80,
    }  # fmt: skip
    [whole] = client.messages.create(**asked).content
    with client.messages.stream(**asked) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        [call] = stream.get_final_message().content
    assert (call.name, call.input) == (whole.name, whole.input)
    assert len(pieces) > 1


def test_results_go_back_and_are_answered(client: anthropic.Anthropic) -> None:
    asked: Any = {"model": MODEL, "tools": TOOLS, "max_tokens": 60}
    first = client.messages.create(messages=QUESTION, tool_choice=ONE, **asked)
    [call] = first.content
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny, 21 degrees"}
    messages: Any = [
        *QUESTION, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}
    ]  # fmt: skip
    last = client.messages.create(messages=messages, tool_choice={"type": "none"}, **asked)
    assert [block.type for block in last.content] == ["text"]


def test_tokens_are_counted_as_they_are_used(client: anthropic.Anthropic) -> None:
    asked: Any = {"model": MODEL, "messages": QUESTION, "tools": TOOLS, "system": "Be brief."}
    counted = client.messages.count_tokens(**asked)
    usage = client.messages.create(max_tokens=1, **asked).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_parse_gives_a_model_s_fields(client: anthropic.Anthropic) -> None:
    asked: Any = {"model": MODEL, "max_tokens": 40, "messages": [{"role": "user", "content": "A party on Friday"}]}
    assert isinstance(client.messages.parse(output_format=Event, **asked).parsed_output, Event)
    with client.messages.stream(output_format=Event, **asked) as stream:
        assert isinstance(stream.get_final_message().parsed_output, Event)
    held = {"format": {"type": "json_schema", "schema": {"enum": ["yes", "no"]}}}
    [block] = client.messages.create(output_config=held, **asked).content
    assert block.text in ('"yes"', '"no"')


def test_beta_routes_are_the_same(client: anthropic.Anthropic) -> None:
    message = client.beta.messages.create(model=MODEL, max_tokens=3, messages=COLOURS, betas=["context-1m-2025-08-07"])
    assert message.content[0].text


def test_models(client: anthropic.Anthropic) -> None:
    [model] = client.models.list().data
    assert model.id == MODEL and model.created_at.year > 2000
    assert client.models.retrieve(MODEL) == model


def test_errors_are_the_client_s_exceptions(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": []}])
    assert caught.value.type == "invalid_request_error"
    assert "messages[0].content: must not be empty" in caught.value.message
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="claude", max_tokens=9, messages=COLOURS)
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("claude")


def test_thoughts() -> None:
    asked: Any = {"model": "small", "max_tokens": 400, "messages": COLOURS}
    with (
        tool_world("hermes", "<think>\nHm.\n</think>\n\nYes.").on_a_port() as url,
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
        client.messages.stream(thinking={"type": "enabled", "budget_tokens": 200}, **asked) as stream,
    ):
        thought, said = stream.get_final_message().content
    assert (thought.thinking, thought.signature, said.text) == ("Hm.", "unsigned", "Yes.")


def test_a_stream_that_fails_raises_and_a_key_is_needed_where_there_are_any() -> None:
    asked: Any = {"model": "small", "max_tokens": 100, "messages": COLOURS}
    world = HttpWorld(api_key=KEY)
    world.client.fails_at = 3
    with world.on_a_port() as url, anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        with client.messages.stream(**asked) as stream, pytest.raises(anthropic.APIStatusError) as caught:
            stream.get_final_message()
        with pytest.raises(anthropic.AuthenticationError):
            client.with_options(api_key="another").messages.create(**asked)
    assert caught.value.type == "api_error"
