"""The official clients, openai of any version since 1.0, against a server: `python official.py URL`."""

import asyncio
import inspect
import sys
from typing import Any, Literal

MODEL = "SmolLM2-135M-Instruct"
HI: Any = [{"role": "user", "content": "Hi"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Bern"]}},
    "required": ["city"],
    "additionalProperties": False,
}


def try_openai(url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    chat = client.chat.completions
    assert [card.id for card in client.models.list()] == [client.models.retrieve(MODEL).id]
    assert chat.create(model=MODEL, messages=HI, max_tokens=8).usage.completion_tokens <= 8
    assert len(list(chat.create(model=MODEL, messages=HI, max_tokens=8, stream=True))) > 1
    made = client.completions.create(model=MODEL, prompt="The Alps are", max_tokens=8, logprobs=2, n=2)
    assert len(made.choices) == 2 and made.choices[0].logprobs.token_logprobs
    for options, error in (({"model": "none"}, openai.NotFoundError), ({"temperature": -1}, openai.BadRequestError)):
        try:
            chat.create(**{"model": MODEL, "messages": HI, **options})
        except error:
            continue
        raise AssertionError(f"no error for {options}")
    asyncio.run(_stream(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)))
    tried = ["models", "chat", "completions", "errors", "async"]
    if "tools" in inspect.signature(chat.create).parameters:
        _use_tool(chat)
        tried.append("tools")
    if hasattr(client, "responses"):
        _answer_in_shape(client)
        tried.append("responses and schemas")
    print(f"ok      openai {openai.__version__}: {', '.join(tried)}")


async def _stream(client: Any) -> None:
    stream = await client.chat.completions.create(model=MODEL, messages=HI, max_tokens=8, stream=True)
    assert len([chunk async for chunk in stream]) > 1


def _use_tool(chat: Any) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
    choice = {"type": "function", "function": {"name": "weather"}}
    made = chat.create(model=MODEL, messages=HI, tools=[tool], tool_choice=choice, max_tokens=50).choices[0].message
    [call] = made.tool_calls
    asked = {"id": call.id, "type": "function", "function": {"name": "weather", "arguments": call.function.arguments}}
    told = {"role": "tool", "tool_call_id": call.id, "content": "Sun"}
    messages = [*HI, {"role": "assistant", "content": None, "tool_calls": [asked]}, told]
    assert chat.create(model=MODEL, messages=messages, max_tokens=8).choices[0].message.content


def _answer_in_shape(client: Any) -> None:
    from pydantic import BaseModel

    class Event(BaseModel):
        kind: Literal["meeting", "party"]

    assert client.responses.create(model=MODEL, input="Hi", max_output_tokens=8).output_text
    with client.responses.stream(model=MODEL, input="Hi", max_output_tokens=50, text_format=Event) as stream:
        assert list(stream) and stream.get_final_response().output_parsed
    shape = {"model": MODEL, "messages": HI, "response_format": Event, "max_tokens": 50}
    assert client.chat.completions.parse(**shape).choices[0].message.parsed
    with client.chat.completions.stream(**shape) as stream:
        assert list(stream) and stream.get_final_completion().choices[0].message.parsed
    options = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2}
    *_, last = client.chat.completions.create(model=MODEL, messages=HI, max_tokens=8, **options)
    assert last.usage.completion_tokens <= 8


def try_anthropic(url: str) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    assert [card.id for card in client.models.list()] == [MODEL]
    with client.messages.stream(model=MODEL, max_tokens=8, messages=HI) as stream:
        assert list(stream.text_stream) and stream.get_final_message().stop_reason
    assert client.messages.count_tokens(model=MODEL, messages=HI).input_tokens > 0
    tools: Any = [{"name": "weather", "input_schema": PARAMETERS}]
    asked = client.messages.create(
        model=MODEL, max_tokens=80, tools=tools, tool_choice={"type": "tool", "name": "weather"}, messages=HI
    )
    [call] = [block for block in asked.content if block.type == "tool_use"]
    told = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Sun"}]}
    messages = [*HI, {"role": "assistant", "content": asked.content}, told]
    assert client.messages.create(model=MODEL, max_tokens=8, tools=tools, messages=messages).content
    print(f"ok      anthropic {anthropic.__version__}: models, stream, count_tokens, tools")


if __name__ == "__main__":
    for attempt in (try_openai, try_anthropic):
        try:
            attempt(sys.argv[1])
        except ModuleNotFoundError as error:
            print(f"left out: {error.name}")
