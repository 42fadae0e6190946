"""`LLM.chat` and `LLM.stream_chat` on a real (tiny) model."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from chairlift import LLM, Content, Reasoning, RequestOutput, SamplingParams, ToolCall
from chairlift.core.errors import InvalidConfig, InvalidRequest
from fakes.tiny_model import write_tiny_hybrid, write_tiny_model
from fakes.tool_worlds import TEMPLATE

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


def thinking(folder: Path) -> Path:
    """The model with the chat template of one that thinks."""
    told = folder / "tokenizer_config.json"
    told.write_text(json.dumps(json.loads(told.read_text()) | {"chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    folder = thinking(write_tiny_model(tmp_path_factory.mktemp("models") / "thinker"))
    return LLM(str(folder), kernels="torch", dtype="float32", threads=1, num_blocks=600, max_running=8)


def joined(pieces: list[Content | Reasoning | ToolCall]) -> tuple[str, str, list[tuple[str, str]]]:
    """Reasoning, content, and names and arguments of calls."""
    return (
        "".join(piece.text for piece in pieces if isinstance(piece, Reasoning)),
        "".join(piece.text for piece in pieces if isinstance(piece, Content)),
        [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, ToolCall)],
    )


def whole(answer: RequestOutput) -> tuple[str, str, list[tuple[str, str]]]:
    return answer.reasoning, answer.text, [(call.name, call.arguments) for call in answer.tool_calls]


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_calls_are_read(llm: LLM, choice: Any) -> None:
    [answer] = llm.chat(HI, PARAMS, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False)
    [call] = answer.tool_calls
    assert (call.name, call.id[:5], answer.text) == ("weather", "call_", "")
    assert json.loads(call.arguments)["city"] in ("Bern", "Rome")
    assert answer.outputs[0].finish_reason == "tool_calls"


def test_several_conversations_share_a_batch_and_keep_their_order(llm: LLM) -> None:
    shape = SamplingParams(temperature=0, max_tokens=50, structured_outputs={"enum": ["a", "b"]})
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
    assert [sample.token_ids for sample in answer.outputs] == [sample.token_ids for sample in completed.outputs]
    assert [sample.text for sample in answer.outputs] == [sample.text for sample in completed.outputs]


def test_a_stream_of_a_model_without_reasoning_is_content_alone(llm: LLM) -> None:
    pieces = list(llm.stream_chat(HI, PARAMS))
    assert len(pieces) > 1
    assert all(type(piece) is Content and piece.text for piece in pieces)
    assert joined(pieces) == whole(llm.chat(HI, PARAMS)[0])


def test_reasoning_is_streamed_apart_from_the_content(thinker: LLM) -> None:
    shape = SamplingParams(temperature=0, max_tokens=100, structured_outputs={"enum": ["a", "b"]})
    how: Any = {"thinking_budget": 6, "chat_template_kwargs": {"is_open": True}}
    pieces = list(thinker.stream_chat(HI, shape, **how))
    assert joined(pieces) == whole(thinker.chat(HI, shape, **how)[0])
    reasoning, content, _ = joined(pieces)
    assert reasoning and json.loads(content) in ("a", "b")
    kinds = [type(piece) for piece in pieces]
    assert kinds == [Reasoning] * kinds.count(Reasoning) + [Content] * kinds.count(Content)
    assert kinds.count(Reasoning) > 1


def test_a_hybrid_thinks_and_answers_in_a_shape_the_same_with_a_prefix_cache_and_without(tmp_path: Path) -> None:
    folder = thinking(write_tiny_hybrid(tmp_path / "hybrid"))
    schema = {
        "type": "object",
        "properties": {"mood": {"enum": ["good", "bad"]}, "legs": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["mood", "legs"],
        "additionalProperties": False,
    }
    how: Any = {"thinking_budget": 6, "chat_template_kwargs": {"is_open": True}}

    def talk(has_cache: bool) -> tuple[list[tuple[str, str]], list[int]]:
        llm = LLM(str(folder), exact=True, prefix_cache=has_cache, threads=1, num_blocks=600, max_running=8)
        chat, said, found = list(HI), [], []
        for turn in range(4):
            params = SamplingParams(temperature=0.8, seed=turn, max_tokens=100, structured_outputs=schema)
            [answer] = llm.chat(chat, params, **how)
            said.append((answer.reasoning, answer.text))
            found.append(answer.num_cached_tokens or 0)
            chat += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "And then?"}]
        return said, found

    (said, found), (alone, never) = talk(True), talk(False)
    assert said == alone
    assert 0 < found[2] < found[3] and not any(never)
    assert all(reasoning and jsonschema_rs.is_valid(schema, json.loads(text)) for reasoning, text in said)


def test_a_call_is_streamed_once_it_is_complete_and_can_be_answered(llm: LLM) -> None:
    how: Any = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    [call] = llm.stream_chat(HI, PARAMS, **how)
    assert isinstance(call, ToolCall) and call.id.startswith("call_")
    assert joined([call]) == whole(llm.chat(HI, PARAMS, **how)[0])
    function = {"name": call.name, "arguments": call.arguments}
    called = {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]}
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}
    assert list(llm.stream_chat([*HI, called, result], PARAMS, tools=[WEATHER], tool_choice="none"))


def test_a_stream_ends_at_a_stop_string(llm: LLM) -> None:
    _, text, _ = joined(list(llm.stream_chat(HI, PARAMS)))
    short = SamplingParams(temperature=0, max_tokens=200, stop=(text[3:5],))
    assert joined(list(llm.stream_chat(HI, short))) == ("", text[: text.index(text[3:5])], [])


def test_closing_a_stream_of_a_chat_frees_its_blocks(llm: LLM) -> None:
    stream = llm.stream_chat(HI, SamplingParams(temperature=0, max_tokens=5000, ignore_eos=True))
    next(stream)
    assert llm.stats().num_running == 1
    stream.close()
    assert (llm.stats().num_running, llm.stats().num_free) == (0, 600)


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("messages", {"messages": []}),
        ("messages", {"messages": [HI]}),
        ("n", {"sampling_params": SamplingParams(n=2)}),
        ("tools[0].function", {"tools": [{}]}),
    ],
)
def test_mistakes_are_named_before_anything_is_streamed(llm: LLM, field: str, asked: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        llm.stream_chat(**{"messages": HI, "sampling_params": PARAMS, **asked})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("tools[0].function", {"tools": [{}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tools": [WEATHER], "tool_choice": "often"}),
        ("messages", {"messages": []}),
        ("messages", {"messages": [HI, []]}),
        ("messages", {"messages": "Hi"}),
        ("sampling_params", {"sampling_params": [PARAMS, PARAMS]}),
        (
            "max_tokens",
            {"sampling_params": SamplingParams(max_tokens=1, structured_outputs={"const": "a long text, by far"})},
        ),
    ],
)
def test_mistakes_are_named(llm: LLM, field: str, asked: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        llm.chat(**{"messages": HI, "sampling_params": PARAMS, **asked})
    assert caught.value.field == field


def test_an_option_that_is_not_known_is_named_with_the_one_that_may_be_meant(llm: LLM) -> None:
    for ask in (llm.chat, llm.stream_chat):
        with pytest.raises(InvalidRequest, match=r"^enable_thinkin: .*did you mean enable_thinking\?.*thinking_budget"):
            ask(HI, PARAMS, enable_thinkin=True)  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest, match=r"^temperature: .* SamplingParams\(temperature="):
        llm.chat(HI, PARAMS, temperature=0)  # type: ignore[call-arg]


def test_an_unknown_format_is_refused_before_anything_is_loaded(tiny_model: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"morse: no known format .*\(--tool-format.*leave it out.*hermes"):
        LLM(str(tiny_model), tool_format="morse")
