"""`LLM.chat` on a real (tiny) model."""

import json
from pathlib import Path
from typing import Any

import pytest

from chairlift import LLM, SamplingParams
from chairlift.core.errors import InvalidConfig, InvalidRequest

PARAMS = SamplingParams(temperature=0, max_tokens=200)
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Bern", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
HI: Any = [{"role": "user", "content": "Hi"}]
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> LLM:
    return LLM(str(tiny_model), kernels="torch", dtype="float32", threads=1, num_blocks=600, max_running=8)


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_calls_are_read(llm: LLM, choice: Any) -> None:
    [answer] = llm.chat(HI, PARAMS, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False)
    [call] = answer.tool_calls
    assert (call.name, call.id[:5], answer.text) == ("weather", "call_", "")
    assert json.loads(call.arguments)["city"] in ("Bern", "Rome")
    assert answer.samples[0].finish_reason == "tool_calls"


def test_several_conversations_share_a_batch_and_keep_their_order(llm: LLM) -> None:
    shape = SamplingParams(temperature=0, max_tokens=50, structured={"enum": ["a", "b"]})
    chats = [HI, [*HI, {"role": "assistant", "content": "Yes?"}, *HI]]
    together = llm.chat(chats, [PARAMS, shape])
    alone = [llm.chat(chat, params)[0] for chat, params in zip(chats, (PARAMS, shape), strict=True)]
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert json.loads(together[1].text) in ("a", "b")
    assert together[0].reasoning == "" and together[0].tool_calls == []


def test_a_chat_is_its_prompt_completed(llm: LLM) -> None:
    short = SamplingParams(temperature=0, max_tokens=8, n=2)
    [answer] = llm.chat(HI, short)
    [completed] = llm.generate([llm.chat_prompt(HI)], short)
    assert [sample.tokens for sample in answer.samples] == [sample.tokens for sample in completed.samples]
    assert [sample.text for sample in answer.samples] == [sample.text for sample in completed.samples]


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("tools[0].function", {"tools": [{}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tools": [WEATHER], "tool_choice": "often"}),
        ("messages", {"messages": []}),
        ("messages", {"messages": [HI, []]}),
        ("messages", {"messages": "Hi"}),
        ("params", {"params": [PARAMS, PARAMS]}),
        ("max_tokens", {"params": SamplingParams(max_tokens=1, structured={"const": "a long text, by far"})}),
    ],
)
def test_mistakes_are_named(llm: LLM, field: str, asked: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        llm.chat(**{"messages": HI, "params": PARAMS, **asked})
    assert caught.value.field == field


def test_an_unknown_format_is_refused_before_anything_is_loaded(tiny_model: Path) -> None:
    with pytest.raises(InvalidConfig, match="--tool-format morse: unknown; known are .*hermes"):
        LLM(str(tiny_model), tool_format="morse")
