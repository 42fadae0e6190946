"""The fields of a chat body that ask for tools and reasoning, and the messages that tell of calls."""

from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.small_tokenizer import tokenizer_of
from fakes.tool_worlds import HI, NOW, TOOLS, WEATHER, tool_world

CALLED = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
ASKED = [*HI, {"role": "assistant", "content": None, "tool_calls": [CALLED]}]
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "Sun"}
NAMED = {"type": "function", "function": {"name": "weather"}}
FLAT = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
AS_JSON = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


async def submitted(world: HttpWorld, **body: Any) -> Any:
    response = await world.post("/v1/chat/completions", {"messages": HI, **body})
    assert response.status_code == 200, response.text
    return world.client.requests[-1]


async def prompt_of(world: HttpWorld, **body: Any) -> str:
    return world.tokenizer.decode((await submitted(world, **body)).prompt, skip_special=False)


async def refused(world: HttpWorld, **body: Any) -> tuple[str, str]:
    response = await world.post("/v1/chat/completions", {"messages": HI, **body})
    assert response.status_code == 400, response.text
    assert world.client.requests == []
    error = response.json()["error"]
    return error["param"], error["message"]


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    inside = {"mode": mode, "tools": [{"type": "function", "function": {"name": name}} for name in names]}
    return {"type": "allowed_tools", "allowed_tools": inside}


def strict(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [NOW, tool("f", parameters={"type": "object", "properties": {"x": schema}}, strict=True)]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("tools[0].function", {"tools": [{"type": "function"}]}),
        ("tools[0]", {"tools": [5]}),
        ("tools", {"tools": {}}),
        ("tools[0].type", {"tools": [{"type": "custom", "custom": {"name": "x"}}]}),
        ("tools[0].function.name", {"tools": [tool("a b")]}),
        ("tools[0].function.name", {"tools": [tool("")]}),
        ("tools[1].function.name", {"tools": [NOW, NOW]}),
        ("tools[0].function.parameters", {"tools": [tool("f", parameters=[])]}),
        ("tools[0].function.parameters.type", {"tools": [tool("f", parameters={"type": "array"})]}),
        ("tools[0].function.strict", {"tools": [tool("f", strict="yes")]}),
        ("tools[1].function.parameters", {"tools": strict({"not": {"type": "string"}})}),
        ("tools", {"tools": [tool(f"f{i}") for i in range(513)]}),
        ("tool_choice", {"tool_choice": "auto"}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": NAMED}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": "sometimes"}),
        ("tool_choice", {"tools": [NOW], "tool_choice": NAMED}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": 5}),
        ("tool_choice.type", {"tools": TOOLS, "tool_choice": {"type": "custom"}}),
        ("tool_choice", {"tool_choice": allowed("auto", "now")}),
        ("tool_choice.mode", {"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}),
        ("tool_choice.allowed_tools", {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": 5}}),
        ("tool_choice.allowed_tools.mode", {"tools": TOOLS, "tool_choice": allowed("none", "now")}),
        ("tool_choice.allowed_tools.tools", {"tools": TOOLS, "tool_choice": allowed("auto")}),
        ("tool_choice.allowed_tools.tools[1].function.name",
         {"tools": TOOLS, "tool_choice": allowed("auto", "now", "later")}),
        ("tool_choice.tools[0].name", {"tools": TOOLS, "tool_choice": FLAT | {"tools": [{"name": "later"}]}}),
        ("tool_choice.tools[0].name", {"tools": TOOLS, "tool_choice": FLAT | {"tools": [{}]}}),
        ("tool_choice.tools[0]", {"tools": TOOLS, "tool_choice": FLAT | {"tools": [{"type": "mcp"}]}}),
        ("tool_choice.function.name", {"tools": TOOLS, "tool_choice": {"type": "function"}}),
        ("tool_choice.function.name", {"tools": TOOLS, "tool_choice": {"type": "function", "function": {}}}),
        ("tool_choice.function.name",
         {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "required"}}}),
        ("parallel_tool_calls", {"tools": TOOLS, "parallel_tool_calls": "no"}),
        ("functions", {"tools": TOOLS, "functions": [{"name": "f"}]}),
        ("functions[0].name", {"functions": [{"name": "a b"}]}),
        ("functions[1].parameters", {"functions": [each["function"] for each in strict({"not": {"type": "string"}})]}),
        ("function_call", {"function_call": {"name": "f"}}),
        ("function_call", {"functions": [{"name": "f"}], "function_call": {"name": "g"}}),
        ("function_call.name", {"functions": [{"name": "f"}], "function_call": {}}),
        ("reasoning_effort", {"reasoning_effort": "huge"}),
        ("enable_thinking", {"enable_thinking": 1}),
        ("chat_template_kwargs.enable_thinking", {"chat_template_kwargs": {"enable_thinking": "no"}}),
        ("chat_template_kwargs", {"chat_template_kwargs": {"tools": []}}),
        ("thinking_budget", {"thinking_budget": -1}),
        ("thinking_token_budget", {"thinking_token_budget": -1}),
        ("thinking_token_budget", {"thinking_budget": 1, "thinking_token_budget": 2}),
        ("tools", {"tools": TOOLS, "use_beam_search": True, "beam_width": 2}),
        ("min_tokens", {"tools": TOOLS, "min_tokens": 3}),
        ("ignore_eos", {"tools": TOOLS, "ignore_eos": True}),
        ("messages[1].tool_calls[0].id", {"messages": [*HI, {"role": "assistant", "tool_calls": [{}]}]}),
        ("messages[1].tool_calls[0].type",
         {"messages": [*HI, {"role": "assistant", "tool_calls": [CALLED | {"type": "custom"}]}]}),
        ("messages[1].tool_calls[0].function",
         {"messages": [*HI, {"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]}),
        ("messages[1].tool_calls[0].function.arguments",
         {"messages": [*HI, {"role": "assistant",
                             "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}]}]}),
        ("messages[1].tool_calls[0].function.arguments",
         {"messages": [*HI, {"role": "assistant",
                             "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "[1]"}}]}]}),
        ("messages[1].tool_calls", {"messages": [*HI, {"role": "assistant", "tool_calls": "x"}]}),
        ("messages[0].tool_calls", {"messages": [HI[0] | {"tool_calls": [CALLED]}]}),
        ("messages[0].reasoning_content", {"messages": [HI[0] | {"reasoning_content": "a"}]}),
        ("messages[0].tool_call_id", {"messages": [HI[0] | {"tool_call_id": "a"}]}),
        ("messages[1].tool_call_id", {"messages": [*HI, RESULT]}),
        ("messages[2].tool_call_id", {"messages": [*ASKED, {"role": "tool", "content": "Sun"}]}),
        ("messages[2].tool_call_id", {"messages": [*ASKED, RESULT | {"tool_call_id": "call_2"}]}),
        ("messages[2].tool_call_id", {"messages": [*ASKED, RESULT | {"tool_call_id": 5}]}),
        ("messages[2].content", {"messages": [*ASKED, RESULT | {"content": None}]}),
        ("messages[1].content", {"messages": [*HI, {"role": "assistant"}]}),
        ("messages[1].function_call",
         {"messages": [*HI, {"role": "assistant", "tool_calls": [CALLED], "function_call": {"name": "f"}}]}),
        ("messages[1].function_call.name",
         {"messages": [*HI, {"role": "assistant", "function_call": {"arguments": ""}}], "functions": [{"name": "f"}]}),
        ("messages[1].function_call.arguments",
         {"messages": [*HI, {"role": "assistant", "function_call": {"name": "f", "arguments": "{"}}]}),
        ("messages[1].function_call",
         {"messages": [*HI, {"role": "user", "content": "a", "function_call": {"name": "f"}}],
          "functions": [{"name": "f"}]}),
        ("messages[1].name", {"messages": [*HI, {"role": "function", "content": "a"}]}),
        ("messages[1].name", {"messages": [*HI, {"role": "function", "name": "f", "content": "a"}]}),
        ("messages[0].audio", {"messages": [HI[0] | {"audio": {"id": "a"}}]}),
        ("max_tokens", {"response_format": AS_JSON, "max_tokens": 1}),
        ("max_completion_tokens", {"response_format": AS_JSON, "max_completion_tokens": 2}),
    ],
)  # fmt: skip
async def test_a_bad_field_is_refused_by_name_before_anything_is_queued(field: str, body: dict[str, Any]) -> None:
    name, message = await refused(tool_world("hermes", ""), **body)
    assert name == field
    assert message.startswith(f"{field}: ")


async def test_a_schema_that_cannot_be_held_to_is_refused_with_its_place() -> None:
    _, message = await refused(tool_world("hermes", ""), tools=strict({"not": {"type": "string"}}))
    assert message.startswith("tools[1].function.parameters: at /properties/x: ")


async def test_a_model_without_a_chat_template_says_so() -> None:
    world = HttpWorld(tokenizer=tokenizer_of(None))
    name, message = await refused(world, tools=TOOLS)
    assert (name, "no chat template" in message) == ("tools", True)
    assert (await world.get("/v1/models")).json()["data"][0]["tool_format"] is None


async def test_a_format_without_calls_says_so() -> None:
    name, message = await refused(tool_world("reasoning", ""), tools=TOOLS)
    assert (name, "cannot call tools" in message) == ("tools", True)


async def test_the_family_is_found_from_the_chat_template_and_named() -> None:
    hermes = 'x <tool_call>{"name": 1, "arguments": 2}</tool_call>'
    for template, family in ((hermes, "hermes"), ("[TOOL_CALLS]", "mistral-list"), ("", "generic")):
        world = HttpWorld(tokenizer=tokenizer_of(template))
        assert (await world.get("/v1/models")).json()["data"][0]["tool_format"] == family


async def test_tools_and_calls_and_results_reach_the_template() -> None:
    world = tool_world("hermes", "Fine.")
    messages = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [CALLED], "reasoning_content": "Hm."},
        RESULT | {"content": [{"type": "text", "text": "Sun"}]},
    ]
    text = await prompt_of(world, messages=messages, tools=[WEATHER])
    assert '"name": "weather"' in text.splitlines()[0]
    assert '<think>Hm.</think><tool_call>{"id": "call_1"' in text and '"arguments": {"city": "Bern"}' in text
    assert "<|im_start|>tool weather call_1\nSun<|im_end|>" in text
    older = [
        *HI,
        {"role": "assistant", "content": None, "function_call": CALLED["function"], "reasoning": "Hm."},
        {"role": "function", "name": "weather", "content": "Sun"},
    ]
    text = await prompt_of(world, messages=older, functions=[WEATHER["function"]])
    assert '"arguments": {"city": "Bern"}' in text and "<|im_start|>tool weather call_" in text


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_an_answer_may_be_reasoning_alone(name: str) -> None:
    messages = [*HI, {"role": "assistant", "content": None, name: "Hm."}, *HI]
    text = await prompt_of(tool_world("hermes", "Fine."), messages=messages)
    assert "assistant\n<think>Hm.</think><|im_end|>" in text


async def test_mistral_gets_ids_of_nine_characters() -> None:
    text = await prompt_of(tool_world("mistral", "Fine."), messages=[*ASKED, RESULT], tools=[WEATHER])
    ids = {line.split()[-1] for line in text.splitlines() if line.startswith("<|im_start|>tool")}
    assert [len(each) for each in ids] == [9]
    assert f'"id": "{ids.pop()}"' in text


async def test_a_template_without_tools_gets_them_in_the_system_message() -> None:
    world = HttpWorld("Fine.", room=8192)
    text = await prompt_of(world, tools=[NOW], messages=[*ASKED, RESULT])
    assert text.startswith("<|im_start|>system\n") and '"name": "now"' in text
    assert "<tool_response>\nSun\n</tool_response>" in text


@pytest.mark.parametrize(
    ("body", "is_held"),
    [
        ({}, False),
        ({"tools": TOOLS}, True),
        ({"tools": TOOLS, "tool_choice": "auto"}, True),
        ({"tools": TOOLS, "tool_choice": "required"}, True),
        ({"tools": TOOLS, "tool_choice": NAMED}, True),
        ({"tools": TOOLS, "tool_choice": "none"}, False),
        ({"tools": [], "tool_choice": "none"}, False),
        ({"thinking_budget": 5}, True),
        ({"thinking_token_budget": 5}, True),
        ({"thinking_budget": 0}, False),  # the template's own way of not thinking
        ({"response_format": AS_JSON}, True),
    ],
)  # fmt: skip
async def test_what_an_answer_is_held_to(body: dict[str, Any], is_held: bool) -> None:
    request = await submitted(tool_world("hermes", "Fine."), **body)
    assert (request.params.structured_outputs is not None) == is_held


async def test_a_shape_begins_behind_the_reasoning_and_stands_alone_where_there_is_none() -> None:
    thinking = (await submitted(tool_world("hermes", "{}"), response_format=AS_JSON)).params.structured_outputs
    assert thinking.kind == "response" and "think>" in thinking.source
    silent = await submitted(tool_world("hermes", "{}"), response_format=AS_JSON, enable_thinking=False)
    assert silent.params.structured_outputs.kind == "json_schema"


async def test_parallel_calls_are_forbidden_by_the_grammar() -> None:
    many, one = [
        (
            await submitted(tool_world("hermes", "a"), tools=TOOLS, tool_choice="required", parallel_tool_calls=each)
        ).params.structured_outputs
        for each in (True, False)
    ]
    assert many != one


@pytest.mark.parametrize("choice", [allowed("required", "now"), allowed("auto", "now"), FLAT])
async def test_allowed_tools_may_be_called_and_all_are_shown(choice: dict[str, Any]) -> None:
    world = tool_world("hermes", "Fine.")
    shape = (await submitted(world, tools=TOOLS, tool_choice=choice)).params.structured_outputs
    assert await prompt_of(world, tools=TOOLS, tool_choice=choice) == await prompt_of(world, tools=TOOLS)
    mode = choice.get("mode") or choice["allowed_tools"]["mode"]
    assert shape == (await submitted(world, tools=[NOW], tool_choice=mode)).params.structured_outputs


async def test_reasoning_is_switched_by_the_template() -> None:
    world = tool_world("hermes", "Fine.")
    for body in ({"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}},
                 {"thinking_budget": 0}, {"reasoning_effort": "none"}):  # fmt: skip
        assert (await prompt_of(world, **body)).endswith("<think>\n\n</think>\n\n")
    assert (await prompt_of(world, enable_thinking=True)).endswith("assistant\n")
    assert (await prompt_of(world, reasoning_effort="low")).endswith("assistant\n(low)")


async def test_thinking_that_a_template_leaves_open_is_closed_by_a_grammar() -> None:
    world = tool_world("hermes", "</think>Fine.")
    request = await submitted(world, enable_thinking=False, chat_template_kwargs={"is_open": True})
    assert request.params.structured_outputs is not None and "</think>" in request.params.structured_outputs.source


async def test_labels_have_no_effect_and_are_not_named() -> None:
    world = tool_world("hermes", "Fine.")
    response = await world.post(
        "/v1/chat/completions", {"messages": HI, "store": True, "metadata": {"a": "b"}, "parallel_tool_calls": True}
    )
    assert response.status_code == 200
    assert "x-chairlift-ignored" not in response.headers


async def test_tokenize_counts_tools() -> None:
    world = tool_world("hermes", "")
    counts = [
        (await world.post("/tokenize", {"messages": HI, **body})).json()["count"]
        for body in ({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"})
    ]
    assert counts[0] == counts[2] < counts[1]


async def test_a_limit_just_below_the_shortest_answer_is_taken() -> None:
    world = tool_world("hermes", '{"a":1}')
    assert await submitted(world, response_format=AS_JSON, max_tokens=5, enable_thinking=False)
