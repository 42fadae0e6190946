"""The official client with shapes, tools and reasoning, against the embedded model."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, ConfigDict

from fakes.served import Served

pytestmark = pytest.mark.slow
MODEL = "SmolLM2-135M-Instruct"
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris? Use a tool."}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "maximum": 9}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "additionalProperties": False}}},
]
NAMED: Any = {"type": "function", "function": {"name": "weather"}}


class Event(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Literal["meeting", "party"]
    day: Literal["Monday", "Friday"]


class Person(BaseModel):
    name: str
    age: int
    tags: list[str]


class weather(BaseModel):
    city: Literal["Paris", "Bern"]


@pytest.fixture(scope="module")
def client(embedded: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{embedded.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.nightly
def test_the_model_s_format_is_named(client: openai.OpenAI) -> None:
    assert client.models.retrieve(MODEL).model_extra["tool_format"] == "generic"  # type: ignore[index]


def test_parse_gives_a_model_s_fields(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": "A party on Friday"}], response_format=Event, max_tokens=40
    )
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, Event)


def test_stream_gives_a_model_s_fields(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "A party on Friday"}], response_format=Event, max_tokens=40
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds
    assert isinstance(final.choices[0].message.parsed, Event)


@pytest.mark.nightly
def test_an_open_list_ends_unless_the_built_in_model_s_penalty_is_turned_off(client: openai.OpenAI) -> None:
    texts = [
        "A baker called Bob",
        "Describe a teacher.",
        "Who are you?",
        "Tell me about Albert Einstein.",
        "A cat lover",
    ]

    def is_cut(text: str, **more: Any) -> bool:
        asked: Any = [{"role": "user", "content": text}]
        try:
            client.chat.completions.parse(
                model=MODEL, messages=asked, response_format=Person, max_tokens=120, extra_body=more
            )
        except openai.LengthFinishReasonError:
            return True
        return False

    with ThreadPoolExecutor(len(texts)) as threads:
        cut = sum(threads.map(is_cut, texts))
        without = sum(threads.map(partial(is_cut, repetition_penalty=1), texts))
    assert cut <= 1 and without >= 3


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_that_must_come_has_valid_arguments(client: openai.OpenAI, choice: Any) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=80
    )
    [choice_made] = answer.choices
    assert choice_made.finish_reason == "tool_calls"
    assert choice_made.message.content is None
    [call] = choice_made.message.tool_calls or []
    assert call.type == "function" and call.id.startswith("call_")
    if choice is NAMED or call.function.name == "weather":
        arguments = json.loads(call.function.arguments)
        assert isinstance(arguments["city"], str) and arguments["days"] <= 9


def test_a_streamed_call_is_the_whole_one(client: openai.OpenAI) -> None:
    asked: Any = {
        "model": MODEL, "messages": QUESTION, "tools": TOOLS, "tool_choice": NAMED, "parallel_tool_calls": False,
        "max_tokens": 80, "temperature": 0,
    }  # fmt: skip
    whole = client.chat.completions.create(**asked).choices[0].message.tool_calls[0]
    with client.chat.completions.stream(**asked) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [event.arguments for event in done] == [whole.function.arguments]
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls[0].function.parsed_arguments == json.loads(whole.function.arguments)


def test_parse_takes_pydantic_tools(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=QUESTION,
        tools=[openai.pydantic_function_tool(weather)],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=60,
    )
    [call] = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, weather)


def test_results_go_back_and_are_answered(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "tools": TOOLS, "parallel_tool_calls": False, "max_tokens": 80}
    first = client.chat.completions.create(messages=QUESTION, tool_choice=NAMED, **asked).choices[0].message
    [call] = first.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees"}
    last = client.chat.completions.create(messages=[*QUESTION, first, result], tool_choice="none", **asked)
    assert last.choices[0].message.content
    assert last.choices[0].message.tool_calls is None


def test_mistakes_name_their_place(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "function": {"name": "a b"}}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=QUESTION, tools=tools)
    assert caught.value.param == "tools[0].function.name"


FLAT: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]
NAMED_FLAT: Any = {"type": "function", "name": "weather"}


def test_a_response_is_told_as_it_is_whole(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "input": "Say hello.", "max_output_tokens": 200, "temperature": 0}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text != ""
    assert final.usage is not None and final.usage.output_tokens <= 200


def test_a_response_parses_into_a_model(client: openai.OpenAI) -> None:
    answer = client.responses.parse(model=MODEL, input="A party on Friday", text_format=Event, max_output_tokens=40)
    assert isinstance(answer.output_parsed, Event)


def test_a_response_calls_and_reads_results(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "tools": FLAT, "parallel_tool_calls": False, "max_output_tokens": 80, "store": False}
    said: Any = [{"role": "user", "content": "What is the weather in Paris? Use a tool."}]
    with client.responses.stream(input=said, tool_choice=NAMED_FLAT, **asked) as stream:
        done = [event for event in stream if event.type == "response.function_call_arguments.done"]
        first = stream.get_final_response()
    [call] = first.output
    assert call.type == "function_call"
    assert [event.arguments for event in done] == [call.arguments]
    assert json.loads(call.arguments)["days"] <= 9
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny, 21 degrees"}
    last = client.responses.create(input=[*said, *first.output, result], tool_choice="none", **asked)
    assert last.output_text


def test_what_needs_kept_responses_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=MODEL, input="Hi", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
