"""The input of a response as the model sees it, and what is refused."""

from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.tool_worlds import TOOLS, tool_world

FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Bern"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "Sun"}
USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
AS_JSON = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}


async def submitted(world: HttpWorld, **body: Any) -> Any:
    response = await world.post("/v1/responses", {"input": "Hi", **body})
    assert response.status_code == 200, response.text
    return world.client.requests[-1]


async def prompt_of(input: Any, **body: Any) -> str:
    world = tool_world("hermes", "Yes")
    return world.tokenizer.decode((await submitted(world, input=input, **body)).prompt, skip_special=False)


def turns(*said: tuple[str, str]) -> str:
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in said) + "<|im_start|>assistant\n"


async def test_text_and_instructions() -> None:
    assert await prompt_of("Hi", instructions="Be brief") == turns(("system", "Be brief"), ("user", "Hi"))


async def test_messages_in_parts() -> None:
    said = [
        {"role": "developer", "content": "Be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "H"},
                                                        {"type": "input_text", "text": "i"}]},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
         "content": [{"type": "output_text", "text": "Yes?", "annotations": [], "logprobs": []}]},
        {"role": "user", "content": "Go"},
    ]  # fmt: skip
    assert await prompt_of(said) == turns(("system", "Be brief"), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Go"))


async def test_what_the_assistant_did_at_once_is_one_message() -> None:
    said = [
        USER,
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"role": "assistant", "content": "Wait"},
        CALL,
        CALL | {"call_id": "call_2"},
        RESULT,
        RESULT | {"call_id": "call_2", "output": [{"type": "input_text", "text": "Rain"}]},
    ]
    prompt = await prompt_of(said, tools=FLAT)
    assert prompt.count("<|im_start|>assistant") == 2
    assert "<think>Hm</think>Wait<tool_call>" in prompt
    assert prompt.count("<tool_call>{") == 2
    assert "tool weather call_1\nSun<|im_end|>" in prompt
    assert "tool weather call_2\nRain<|im_end|>" in prompt


async def test_a_message_behind_a_call_joins_it() -> None:
    prompt = await prompt_of([USER, CALL, {"role": "assistant", "content": "Wait"}, RESULT], tools=FLAT)
    assert prompt.count("<|im_start|>assistant") == 2
    assert "Wait<tool_call>{" in prompt


async def test_reasoning_between_calls_joins_them() -> None:
    thoughts = [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]} for text in ("Hm", "Ah")]
    second = {"call_id": "call_2"}
    said = [USER, thoughts[0], CALL, thoughts[1], CALL | second, RESULT, RESULT | second]
    prompt = await prompt_of(said, tools=FLAT)
    assert prompt.count("<|im_start|>assistant") == 2
    assert "<think>Hm\nAh</think><tool_call>{" in prompt
    assert prompt.count("<tool_call>{") == 2


async def test_calls_after_their_outputs_are_another_message() -> None:
    said = [USER, CALL, RESULT, CALL | {"call_id": "call_2"}, RESULT | {"call_id": "call_2"}]
    prompt = await prompt_of(said, tools=FLAT)
    assert prompt.count("<|im_start|>assistant") == 3


async def test_messages_of_the_assistant_in_a_row_stay_apart() -> None:
    said = [USER, {"role": "assistant", "content": "A"}, {"role": "assistant", "content": "B"}, USER]
    assert "A<|im_end|>\n<|im_start|>assistant\nB" in await prompt_of(said)


async def test_a_summary_stands_for_reasoning_that_a_client_did_not_keep() -> None:
    said = [
        USER,
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm"}]},
        CALL,
        RESULT,
    ]
    assert "<think>Hm</think>" in await prompt_of(said, tools=FLAT)


async def test_a_shape_holds_the_answer() -> None:
    world = tool_world("hermes", '{"a": 1}')
    assert (await submitted(world, text=AS_JSON)).params.structured_outputs is not None
    assert (await submitted(world, text={"format": {"type": "text"}})).params.structured_outputs is None


async def test_sampling_fields_are_those_of_chat() -> None:
    world = HttpWorld()
    params = (await submitted(world, max_output_tokens=7, temperature=0.5, top_k=3, seed=4, min_p=0.1)).params
    assert (params.max_tokens, params.temperature, params.top_k, params.seed, params.min_p) == (7, 0.5, 3, 4, 0.1)


async def test_effort_reaches_the_template() -> None:
    assert (await prompt_of("Hi", reasoning={"effort": "low"})).endswith("(low)")


async def test_tools_that_the_server_would_run_are_left_out_and_reported() -> None:
    world = tool_world("hermes", "Yes")
    tools = [{"type": "web_search"}, *FLAT]
    body = {"input": "Hi", "tools": tools, "reasoning": {"summary": "auto"}, "store": True, "frob": 1}
    response = await world.post("/v1/responses", body)
    assert response.status_code == 200, response.text
    assert response.headers["X-Chairlift-Ignored"] == "frob,tools[0],reasoning.summary"
    assert [tool["name"] for tool in response.json()["tools"]] == ["weather", "now"]


NAMED = {"type": "function", "name": "now"}
ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [NAMED]}


async def test_a_choice_among_tools_that_were_left_out_is_none() -> None:
    world = tool_world("hermes", "Yes")
    body = {"input": "Hi", "tools": [{"type": "web_search"}], "tool_choice": "auto"}
    assert (await world.post("/v1/responses", body)).status_code == 200
    allowed = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "web_search"}, FLAT[1] | {"type": "function"}],
    }
    chosen = await submitted(world, tools=[{"type": "web_search"}, *FLAT], tool_choice=allowed)
    assert "weather" not in str(chosen.params.structured_outputs)


async def test_what_has_no_effect_is_named() -> None:
    world = tool_world("hermes", "Yes")
    kept = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    include = ["reasoning.encrypted_content", "message.output_text.logprobs"]
    response = await world.post("/v1/responses", {"input": [USER, kept, CALL, RESULT], "include": include})
    assert response.headers["X-Chairlift-Ignored"] == "include[0],input[1]"


@pytest.mark.parametrize("choice", [NAMED, ALLOWED])
async def test_a_named_tool_is_called(choice: dict[str, Any]) -> None:
    world = tool_world("hermes", "Yes")
    chosen = await submitted(world, tools=FLAT, tool_choice=choice)
    assert "now" in str(chosen.params.structured_outputs)
    assert "weather" not in str(chosen.params.structured_outputs)


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("input", {"input": []}),
        ("input", {"input": None}),
        ("input", {"input": 5}),
        ("input[0].role", {"input": [{"role": "tool", "content": "a"}]}),
        ("input[0].role", {"input": [{"content": "a"}]}),
        ("input[0].content", {"input": [{"role": "user"}]}),
        ("input[1].content[0].type", {"input": [USER, {"role": "user", "content": [{"type": "input_image"}]}]}),
        ("input[0].content[0].text", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}),
        ("input[0].type", {"input": [{"type": "computer_call"}]}),
        ("input[0].id", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        ("input[1].call_id", {"input": [USER, {"type": "function_call", "name": "f", "arguments": "{}"}]}),
        ("input[1].name", {"input": [USER, CALL | {"name": None}]}),
        ("input[1].arguments", {"input": [USER, CALL | {"arguments": "{"}]}),
        ("input[2].arguments", {"input": [USER, CALL, CALL | {"call_id": "b", "arguments": "[]"}]}),
        ("input[1].call_id", {"input": [USER, RESULT]}),
        ("input[2].call_id", {"input": [USER, CALL, RESULT | {"call_id": "call_2"}]}),
        ("input[2].output", {"input": [USER, CALL, RESULT | {"output": None}]}),
        ("input[2].output[0].type", {"input": [USER, CALL, RESULT | {"output": [{"type": "input_file"}]}]}),
        ("instructions", {"instructions": 5}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("max_output_tokens", {"max_output_tokens": 1, "text": AS_JSON}),
        ("temperature", {"temperature": -1}),
        ("tools[1].name", {"tools": [{"type": "web_search"}, {"type": "function", "name": "a b"}]}),
        ("tools[0].parameters.type", {"tools": [{"type": "function", "name": "f", "parameters": {"type": "array"}}]}),
        ("tools[0].type", {"tools": [{"type": "local_shell"}]}),
        ("tools[0].type", {"tools": [{"type": "mcp", "server_url": "x"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tools": FLAT, "tool_choice": {"type": "function", "name": "other"}}),
        ("tool_choice.name", {"tools": FLAT, "tool_choice": {"type": "function"}}),
        ("tool_choice.mode", {"tools": FLAT, "tool_choice": ALLOWED | {"mode": "none"}}),
        ("tool_choice.tools[0].name", {"tools": FLAT, "tool_choice": ALLOWED | {"tools": [NAMED | {"name": "x"}]}}),
        ("tool_choice.type", {"tools": FLAT, "tool_choice": {"type": "web_search"}}),
        ("text.format.type", {"text": {"format": {"type": "xml"}}}),
        ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "x"}}}),
        ("text.format.schema", {"text": {"format": AS_JSON["format"] | {"schema": {"type": "odd"}}}}),
        ("reasoning.effort", {"reasoning": {"effort": "huge"}}),
        ("truncation", {"truncation": "left"}),
        ("top_logprobs", {"top_logprobs": 9999}),
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("conversation", {"conversation": "conv_1"}),
        ("prompt", {"prompt": {"id": "x"}}),
        ("background", {"background": True}),
        ("messages", {"messages": [USER]}),
        ("max_tokens", {"max_tokens": 5}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("reasoning_effort", {"reasoning_effort": "low"}),
        ("timeout", {"timeout": -1}),
    ],
)
async def test_a_bad_body_names_its_own_field(field: str, body: dict[str, Any]) -> None:
    world = tool_world("hermes", "Yes")
    response = await world.post("/v1/responses", {"input": "Hi", **body})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == field, error
    assert error["message"].startswith(f"{field}: ")
    assert world.client.requests == []


async def test_a_prompt_that_does_not_fit_is_the_input_s() -> None:
    world = HttpWorld()
    response = await world.post("/v1/responses", {"input": "Hi " * 2000})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input")


async def test_an_unknown_model_is_not_found() -> None:
    response = await HttpWorld().post("/v1/responses", {"model": "other", "input": "Hi"})
    assert response.status_code == 404
