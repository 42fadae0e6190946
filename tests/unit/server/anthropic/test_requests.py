"""The fields of Anthropic's bodies: what becomes of each, and errors by its own name."""

from typing import Any

import pytest

from fakes.anthropic_api import HI, NOW, TOOLS, ask, prompt_of, submitted
from fakes.http_world import HttpWorld
from fakes.small_tokenizer import tokenizer_of
from fakes.tool_worlds import tool_world

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
ODD = {"type": "object", "properties": {"x": {"not": {"type": "string"}}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sun"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


async def refused(world: HttpWorld, path: str = "/v1/messages", **body: Any) -> str:
    response = await world.post(path, {"max_tokens": 100, "messages": HI, **body})
    assert response.status_code == 400, response.text
    assert world.client.requests == []
    body = response.json()
    assert body.keys() == {"type", "error", "request_id"} and body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    return str(body["error"]["message"])


IN_PROMPT: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": None}),
    ("messages", {"messages": []}),
    ("messages", {"messages": "Hi"}),
    ("messages[1]", {"messages": [user(text("a")), {"role": "assistant", "content": [
        {"type": "tool_use", "id": "a", "name": "weather", "input": {}}]}]}),
    ("output_format", {"messages": [user(text("a")), {"role": "assistant", "content": "{"}],
                       "output_format": {"type": "json_schema", "schema": {"type": "object"}}}),
    ("messages[0].role", {"messages": [{"role": "tool", "content": "a"}]}),
    ("messages[0].role", {"messages": [{"content": "a"}]}),
    ("messages[0].content", {"messages": [{"role": "user"}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 5}]}),
    ("messages[0].content", {"messages": [user()]}),
    ("messages[0].content[0].type", {"messages": [user({"text": "a"})]}),
    ("messages[0].content[1].type", {"messages": [user(text("a"), IMAGE)]}),
    ("messages[0].content[0].type", {"messages": [user({"type": "document", "source": {}})]}),
    ("messages[0].content[0].type", {"messages": [user({"type": "search_result", "content": [text("a")]})]}),
    ("messages[1].content[0].type", {"messages": [*HI, assistant({"type": "server_tool_use", "id": "a"})]}),
    ("messages[0].content[0].text", {"messages": [user({"type": "text"})]}),
    ("messages[0].content[0].text", {"messages": [user({"type": "text", "text": 5})]}),
    ("messages[0].content[0].type", {"messages": [user(CALL)]}),
    ("messages[0].content[0].type", {"messages": [user({"type": "thinking", "thinking": "a"})]}),
    ("messages[1].content[0].type", {"messages": [*HI, assistant(RESULT)]}),
    ("messages[1].content[0].id", {"messages": [*HI, assistant(CALL | {"id": None}), user(RESULT)]}),
    ("messages[1].content[0].name", {"messages": [*HI, assistant(CALL | {"name": None}), user(RESULT)]}),
    ("messages[1].content[0].input", {"messages": [*HI, assistant(CALL | {"input": None}), user(RESULT)]}),
    ("messages[1].content[1].input", {"messages": [*HI, assistant(text("a"), CALL | {"input": []}), user(RESULT)]}),
    ("messages[1].content[0].thinking", {"messages": [*HI, assistant({"type": "thinking"})]}),
    ("messages[1]", {"messages": [*HI, assistant(CALL)]}),
    ("messages[2].content[1].tool_use_id",
     {"messages": [*HI, assistant(CALL), user(RESULT, RESULT | {"tool_use_id": "toolu_2"})]}),
    ("messages[2].content[0].tool_use_id", {"messages": [*HI, assistant(CALL), user({"type": "tool_result"})]}),
    ("messages[2].content[0].content[1].type",
     {"messages": [*HI, assistant(CALL), user(RESULT | {"content": [text("a"), IMAGE]})]}),
    ("messages[2].content[0].content[0].text",
     {"messages": [*HI, assistant(CALL), user(RESULT | {"content": [{"type": "text"}]})]}),
    ("messages[2].content[0].is_error", {"messages": [*HI, assistant(CALL), user(RESULT | {"is_error": "no"})]}),
    ("system", {"system": 5}),
    ("system[0].type", {"system": [IMAGE]}),
    ("system[0].text", {"system": [{"type": "text"}]}),
    ("tools", {"tools": {}}),
    ("tools[0]", {"tools": [5]}),
    ("tools[1].name", {"tools": [NOW, {"name": "a b", "input_schema": {}}]}),
    ("tools[1].name", {"tools": [SEARCH, {"name": "a b", "input_schema": {}}]}),
    ("tools[0].name", {"tools": [{"input_schema": {}}]}),
    ("tools[1].name", {"tools": [NOW, NOW]}),
    ("tools[0].input_schema", {"tools": [{"name": "f"}]}),
    ("tools[0].input_schema", {"tools": [{"name": "f", "input_schema": []}]}),
    ("tools[0].input_schema.type", {"tools": [{"name": "f", "input_schema": {"type": "array"}}]}),
    ("tools[0].description", {"tools": [NOW | {"description": 5}]}),
    ("tools[0].strict", {"tools": [NOW | {"strict": "yes"}]}),
    ("tools[0].type", {"tools": [{"type": "bash_20250124", "name": "bash"}]}),
    ("tools[0].type", {"tools": [{"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}]}),
    ("tool_choice", {"tool_choice": {"type": "any"}}),
    ("tool_choice", {"tool_choice": {"type": "auto"}}),
    ("tool_choice", {"tools": TOOLS, "tool_choice": "any"}),
    ("tool_choice", {"tools": [SEARCH], "tool_choice": {"type": "any"}}),
    ("tool_choice.type", {"tools": TOOLS, "tool_choice": {"type": "required"}}),
    ("tool_choice.name", {"tools": TOOLS, "tool_choice": {"type": "tool"}}),
    ("tool_choice.name", {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "then"}}),
    ("tool_choice.name", {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "auto"}}),
    ("tool_choice.name", {"tools": [NOW, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}),
    ("tool_choice.disable_parallel_tool_use",
     {"tools": TOOLS, "tool_choice": {"type": "auto", "disable_parallel_tool_use": "no"}}),
    ("thinking.type", {"thinking": {"type": "sometimes"}}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled"}}),
    ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 0}}),
    ("output_config.effort", {"output_config": {"effort": "huge"}}),
    ("output_config.format.type", {"output_config": {"format": {"type": "json_object", "schema": {}}}}),
    ("output_config.format.schema", {"output_config": {"format": {"type": "json_schema"}}}),
    ("output_format", {"output_format": FORMAT, "output_config": {"format": FORMAT}}),
    ("mcp_servers", {"mcp_servers": [{"type": "url", "url": "https://example.org"}]}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"tools": []}}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "body"), IN_PROMPT)
async def test_a_bad_field_of_the_prompt_is_refused_by_its_name(field: str, body: dict[str, Any]) -> None:
    world = tool_world("hermes", "")
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        assert (await refused(world, path, **body)).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("max_tokens", {"max_tokens": None}),
        ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": "many"}),
        ("max_tokens", {"max_tokens": 1, "output_config": {"format": FORMAT}}),
        ("stop_sequences", {"stop_sequences": "END"}),
        ("stop_sequences", {"stop_sequences": ["a"] * 1000}),
        ("temperature", {"temperature": -1}),
        ("top_p", {"top_p": 2}),
        ("top_k", {"top_k": 1.5}),
        ("stream", {"stream": "yes"}),
        ("metadata.user_id", {"metadata": {"user_id": 5}}),
        ("metadata.user_id", {"metadata": {"user_id": "a" * 2000}}),
        ("timeout", {"timeout": -1}),
        ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 100}}),
        ("output_config.format.schema", {"output_config": {"format": {"type": "json_schema", "schema": ODD}}}),
        ("output_format.schema", {"output_format": {"type": "json_schema", "schema": ODD}}),
        ("tools[2].input_schema", {"tools": [NOW, SEARCH, {"name": "f", "input_schema": ODD, "strict": True}]}),
    ],
)
async def test_a_bad_field_is_refused_by_its_name(field: str, body: dict[str, Any]) -> None:
    assert (await refused(tool_world("hermes", ""), **body)).startswith(f"{field}: ")


async def test_typed_tools_say_the_way_out() -> None:
    world = tool_world("hermes", "Fine.")
    bash = {"type": "bash_20250124", "name": "bash"}
    assert (await refused(world, tools=[bash])).endswith("give the tool an input_schema")
    assert '"name": "bash"' in await prompt_of(world, tools=[bash | {"input_schema": {"type": "object"}}])


async def test_sampling_fields_reach_the_engine() -> None:
    request = await submitted(
        tool_world("hermes", "Fine."),
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        stop_sequences=["END"],
        seed=3,
        metadata={"user_id": "ann"},
        priority=2,
    )
    params = request.params
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (7, 0.5, 0.9, 5)
    assert (params.stop, params.seed) == (("END",), 3)
    assert (request.attributes.user, request.attributes.priority) == ("ann", 2)


async def test_blocks_reach_the_template() -> None:
    messages = [
        user(text("One."), text("Two.")),
        assistant(
            {"type": "thinking", "thinking": "Hm.", "signature": "unsigned"},
            {"type": "redacted_thinking", "data": "xyz"},
            text("Let me "),
            text("see."),
            CALL | {"cache_control": {"type": "ephemeral"}},
            CALL | {"id": "toolu_2", "input": {}},
        ),
        user(
            text("And?"),
            RESULT | {"content": [text("Sun"), text("Wind")]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "No city", "is_error": True},
        ),
    ]
    shown = await prompt_of(
        tool_world("hermes", "Fine."), system=[text("Be brief."), text("Be kind.")], messages=messages, tools=TOOLS
    )
    assert shown.split("<|im_start|>")[1:] == [
        "system\nBe brief.\nBe kind.<|im_end|>\n",
        "user\nOne.\nTwo.<|im_end|>\n",
        "assistant\n<think>Hm.</think>Let me see."
        '<tool_call>{"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '
        '{"city": "Bern"}}}</tool_call>'
        '<tool_call>{"id": "toolu_2", "type": "function", "function": {"name": "weather", "arguments": '
        "{}}}</tool_call><|im_end|>\n",
        "tool weather toolu_1\nSun\nWind<|im_end|>\n",
        "tool weather toolu_2\nError: No city<|im_end|>\n",
        "user\nAnd?<|im_end|>\n",
        "assistant\n",
    ]
    assert '"description"' not in shown and '"parameters": {"type": "object"}' in shown


async def test_a_result_may_have_no_content() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    shown = await prompt_of(tool_world("hermes", "Fine."), messages=[*HI, assistant(CALL), user(result)], tools=TOOLS)
    assert "tool weather toolu_1\n<|im_end|>" in shown


async def test_neighbours_of_one_role_are_one_message() -> None:
    messages = [
        {"role": "system", "content": "b"}, *HI, user(text("Ho")), assistant(text("x")),
        {"role": "assistant", "content": "y"}, *HI,
    ]  # fmt: skip
    shown = await prompt_of(tool_world("hermes", "Fine."), system="a", messages=messages)
    assert [part.removesuffix("<|im_end|>\n") for part in shown.split("<|im_start|>")[1:]] == [
        "system\na\nb", "user\nHi\nHo", "assistant\nxy", "user\nHi", "assistant\n"
    ]  # fmt: skip


async def test_the_answer_continues_a_last_message_of_the_assistant() -> None:
    for content in ("The answer is", [text("The answer"), text(" is")]):
        shown = await prompt_of(
            tool_world("hermes", "Fine."), messages=[*HI, {"role": "assistant", "content": content}]
        )
        assert shown.endswith("<|im_start|>assistant\nThe answer is")


async def test_an_empty_answer_may_go_back() -> None:
    shown = await prompt_of(tool_world("hermes", "Fine."), messages=[*HI, assistant(), *HI])
    assert "<|im_start|>assistant\n<|im_end|>" in shown


@pytest.mark.parametrize(
    ("choice", "is_told", "is_held"),
    [(None, True, True), ("auto", True, True), ("any", True, True), ("none", False, False)],
)
async def test_the_choice_among_tools(choice: str | None, is_told: bool, is_held: bool) -> None:
    world = tool_world("hermes", "Fine.")
    body = {"tools": TOOLS} | ({} if choice is None else {"tool_choice": {"type": choice}})
    assert ('"name": "now"' in await prompt_of(world, **body)) == is_told
    assert (world.client.requests[-1].params.structured_outputs is not None) == is_held


async def test_choices_hold_to_different_grammars() -> None:
    choices = [
        {"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "now"},
        {"type": "any", "disable_parallel_tool_use": True},
    ]  # fmt: skip
    held = [
        (await submitted(tool_world("hermes", "a"), tools=TOOLS, tool_choice=choice)).params.structured_outputs.source
        for choice in choices
    ]
    assert len({*held}) == len(choices)


async def test_tools_of_anthropic_s_servers_are_left_out_and_reported() -> None:
    world = tool_world("hermes", "Fine.")
    for choice in ({}, {"tool_choice": {"type": "auto"}}):
        body = {"max_tokens": 9, "messages": HI, "tools": [SEARCH], **choice}
        response = await world.post("/v1/messages", body)
        assert response.headers["x-chairlift-ignored"] == "tools[0]"
        assert world.client.requests[-1].params.structured_outputs is None
    response = await world.post(
        "/v1/messages", {"max_tokens": 9, "messages": HI, "tools": [NOW | {"input_examples": [{}]}, SEARCH]}
    )
    assert response.headers["x-chairlift-ignored"] == "tools[].input_examples,tools[1]"
    assert world.client.requests[-1].params.structured_outputs is not None


async def test_labels_are_silent_and_what_would_matter_is_reported() -> None:
    world = tool_world("hermes", "Fine.")
    ephemeral = {"type": "ephemeral"}
    labels = {
        "max_tokens": 9,
        "messages": [user(text("Hi") | {"cache_control": ephemeral})],
        "system": [text("a") | {"cache_control": ephemeral}],
        "tools": [NOW | {"cache_control": ephemeral, "type": "custom"}],
        "metadata": {"user_id": "ann"},
        "service_tier": "auto",
        "cache_control": ephemeral,
        "betas": ["a"],
        "thinking": {"type": "adaptive"},
    }
    response = await world.post("/v1/messages?beta=true", labels)
    assert response.status_code == 200
    assert "x-chairlift-ignored" not in response.headers
    odd = {"context_management": {"edits": []}, "container": "a", "temprature": 1, "n": 2}
    response = await world.post("/v1/messages", labels | odd)
    assert {*response.headers["x-chairlift-ignored"].split(",")} == odd.keys()
    response = await world.post("/v1/messages", labels | {"thinking": {"type": "adaptive", "display": "omitted"}})
    assert response.headers["x-chairlift-ignored"] == "thinking.display"


async def test_thinking_is_switched_by_the_template() -> None:
    world = tool_world("hermes", "Fine.")
    assert (await prompt_of(world, thinking={"type": "disabled"})).endswith("<think>\n\n</think>\n\n")
    assert (await prompt_of(world, thinking={"type": "adaptive"})).endswith("assistant\n")
    budgeted = await submitted(world, thinking={"type": "enabled", "budget_tokens": 50})
    assert budgeted.params.structured_outputs is not None
    assert (await prompt_of(world, output_config={"effort": "low"})).endswith("assistant\n(low)")
    assert (await prompt_of(world, output_config={"effort": "max"})).endswith("assistant\n(xhigh)")


async def test_a_model_that_does_not_reason_ignores_a_budget() -> None:
    message = await ask(HttpWorld("Fine."), max_tokens=200, thinking={"type": "enabled", "budget_tokens": 50})
    assert message["content"] == [{"type": "text", "text": "Fine."}]


@pytest.mark.parametrize("body", [{"output_config": {"format": FORMAT}}, {"output_format": FORMAT}])
async def test_an_answer_is_held_to_a_schema(body: dict[str, Any]) -> None:
    request = await submitted(tool_world("hermes", '{"a":1}'), thinking={"type": "disabled"}, **body)
    assert request.params.structured_outputs.kind == "json_schema"


async def test_more_tokens_than_fit_are_lowered_to_what_fits() -> None:
    world = HttpWorld("a b c d e f g h", room=40)
    request = await submitted(world, max_tokens=32_000)
    assert len(request.prompt) + request.params.max_tokens == 40


async def test_a_model_without_a_chat_template_says_so() -> None:
    message = await refused(HttpWorld(tokenizer=tokenizer_of(None)))
    assert message.startswith("messages: the model has no chat template")


async def test_tokens_are_counted_as_they_are_sent() -> None:
    world = tool_world("hermes", "Fine.")
    for body in ({}, {"system": "Be brief."}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": {"type": "none"}},
                 {"thinking": {"type": "disabled"}}, {"messages": [*HI, assistant(text("So"))]}):  # fmt: skip
        counted = await world.post("/v1/messages/count_tokens?beta=true", {"messages": HI, **body})
        assert counted.status_code == 200, counted.text
        assert counted.json() == {"input_tokens": len((await submitted(world, **body)).prompt)}
