"""What each Python client is tried with; `python checks.py URL` prints a line for each, and fails if one does."""

import asyncio
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any, Literal

import anthropic
import instructor
import openai
from pydantic import BaseModel

MODEL = "SmolLM2-135M-Instruct"
QUESTION = "What is the weather in Paris? Use a tool."
PARTY: Any = [{"role": "user", "content": "A party on Friday"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
CHECKS: dict[str, Callable[[str], None]] = {}


class Event(BaseModel):
    kind: Literal["meeting", "party"]
    day: Literal["Monday", "Friday"]


def check(name: str) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    def note(run: Callable[[str], None]) -> Callable[[str], None]:
        CHECKS[name] = run
        return run

    return note


def chat_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def _instructor(url: str, mode: instructor.Mode) -> None:
    made = instructor.from_openai(chat_client(url), mode=mode).chat.completions.create(
        model=MODEL, response_model=Event, max_retries=0, messages=PARTY
    )
    assert isinstance(made, Event)


@check("instructor: tools")
def instructor_tools(url: str) -> None:
    _instructor(url, instructor.Mode.TOOLS)


@check("instructor: JSON schema")
def instructor_json_schema(url: str) -> None:
    _instructor(url, instructor.Mode.JSON_SCHEMA)


@check("instructor: partial stream")
def instructor_partial(url: str) -> None:
    client = instructor.from_openai(chat_client(url), mode=instructor.Mode.TOOLS)
    *_, last = client.chat.completions.create_partial(model=MODEL, response_model=Event, max_retries=0, messages=PARTY)
    assert last.kind in ("meeting", "party")


def _langchain(url: str, **options: Any) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key="none", max_retries=0, max_tokens=200, **options)


@check("langchain-openai: structured output, three methods")
def langchain_structured(url: str) -> None:
    for method in ("json_schema", "function_calling"):
        made = _langchain(url).with_structured_output(Event, method=method).invoke("A party on Friday")
        assert isinstance(made, Event), method
    made = _langchain(url).with_structured_output(None, method="json_mode").invoke('{"a": 1} Repeat this JSON')
    assert isinstance(made, dict)


@check("langchain-openai: tools, stream and results")
def langchain_tools(url: str) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def weather(city: str) -> str:
        """The weather of a city"""
        return "Sun"

    for options in ({}, {"use_responses_api": True}):
        bound = _langchain(url, **options).bind_tools([weather], tool_choice="weather", parallel_tool_calls=False)
        whole = None
        for piece in bound.stream([HumanMessage(QUESTION)]):
            whole = piece if whole is None else whole + piece
        assert whole is not None
        [call] = whole.tool_calls
        result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
        assert _langchain(url, **options).invoke([HumanMessage(QUESTION), whole, result]).text


def _pydantic_ai(model: Any) -> None:
    from pydantic_ai import Agent, NativeOutput, ToolOutput

    for output in (ToolOutput(Event), NativeOutput(Event)):
        made = Agent(model, output_type=output, model_settings={"max_tokens": 300}).run_sync("A party on Friday")
        assert isinstance(made.output, Event), output


@check("pydantic-ai: chat completions")
def pydantic_ai_chat(url: str) -> None:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    _pydantic_ai(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none")))


@check("pydantic-ai: responses")
def pydantic_ai_responses(url: str) -> None:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    _pydantic_ai(OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none")))


@check("openai-agents: an agent with a tool")
def agents(url: str) -> None:
    from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

    @function_tool
    def weather(city: Literal["Paris", "Bern"]) -> str:
        """The weather of a city"""
        return "Sun"

    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    agent = Agent(
        "forecaster",
        model=OpenAIResponsesModel(MODEL, client),
        tools=[weather],
        model_settings=ModelSettings(tool_choice="required", parallel_tool_calls=False, max_tokens=200),
    )
    result = asyncio.run(Runner.run(agent, QUESTION, max_turns=4))
    assert any(item.type == "tool_call_output_item" for item in result.new_items)


@check("smolagents: a tool calling agent")
def smol(url: str) -> None:
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    @tool
    def weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        return "Sun"

    model = OpenAIServerModel(MODEL, api_base=f"{url}/v1", api_key="none", max_tokens=200)
    agent = ToolCallingAgent(tools=[weather], model=model, max_steps=2, verbosity_level=0)
    agent.run(QUESTION)
    assert any(step.tool_calls for step in agent.memory.steps if hasattr(step, "tool_calls"))


@check("llm: chat with a schema")
def llm_command(url: str) -> None:
    from llm.default_plugins.openai_models import Chat

    model = Chat(MODEL, model_name=MODEL, api_base=f"{url}/v1", supports_schema=True)
    made = json.loads(model.prompt("A party on Friday", schema=Event, key="none", max_tokens=100).text())
    Event.model_validate(made)


@check("anthropic: stream, tools and results")
def anthropic_tools(url: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    asked: Any = {
        "model": MODEL,
        "max_tokens": 200,
        "tools": [{"name": "weather", "description": "The weather of a city", "input_schema": PARAMETERS}],
    }
    said: Any = [{"role": "user", "content": QUESTION}]
    choice: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    with client.messages.stream(messages=said, tool_choice=choice, **asked) as stream:
        first = stream.get_final_message()
    [call] = [block for block in first.content if block.type == "tool_use"]
    assert first.stop_reason == "tool_use" and isinstance(call.input["city"], str)
    result: Any = [{"type": "tool_result", "tool_use_id": call.id, "content": "Sun"}]
    history: Any = [*said, {"role": "assistant", "content": first.content}, {"role": "user", "content": result}]
    assert client.messages.create(messages=history, tool_choice={"type": "none"}, **asked).content
    assert client.messages.count_tokens(model=MODEL, messages=said).input_tokens > 5


def main(url: str) -> int:
    num_failed = 0
    for name, run in CHECKS.items():
        try:
            run(url)
            print(f"ok      {name}", flush=True)
        except Exception:
            num_failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc(limit=-6)}", flush=True)
    return min(num_failed, 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
