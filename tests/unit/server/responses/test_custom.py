"""Custom tools: a function with one text for the model, bare text for the client."""

import json
from typing import Any

import pytest

from chairlift.server.openai.responses.custom import InputText
from fakes.tool_worlds import tool_world
from unit.server.responses.test_namespaces import USER, prompt_of
from unit.server.responses.test_responses_output import followed, streamed, whole, without_ids
from unit.text.responses.streams import hermes

PATCH = '*** Begin Patch\n+print("é 😀")\n*** End Patch'
APPLY = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
LARK = APPLY | {"format": {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}}
CODE = {"type": "custom", "name": "code", "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}}
CALL = {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": PATCH}
RESULT = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done"}


@pytest.mark.parametrize("ascii", [True, False])
async def test_a_call_gives_the_bare_text_whole_and_streamed(ascii: bool) -> None:
    says = "Well." + hermes(("apply_patch", json.dumps({"input": PATCH}, ensure_ascii=ascii)))
    world = tool_world("hermes", says)
    response = await whole(world, tools=[APPLY])
    call = response["output"][1]
    assert (call["type"], call["name"], call["input"], call["status"]) == (
        "custom_tool_call", "apply_patch", PATCH, "completed",
    )  # fmt: skip
    assert response["tools"] == [APPLY]
    told = await streamed(world, tools=[APPLY])
    assert without_ids(followed(told)) == without_ids(response)
    assert sum(each["type"] == "response.custom_tool_call_input.delta" for each in told) > len(PATCH) / 2


async def test_a_call_that_is_cut_is_incomplete() -> None:
    world = tool_world("hermes", '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "ab')
    response = followed(await streamed(world, tools=[APPLY]))
    assert [(item["input"], item["status"]) for item in response["output"]] == [("ab", "incomplete")]


async def test_the_model_sees_a_function_and_a_history_of_calls() -> None:
    prompt = await prompt_of(tools=[LARK, CODE], input=[USER, CALL, RESULT])
    lark, code = (each["function"] for each in json.loads(prompt.partition("\n")[0]))
    assert lark["description"] == 'Edits files.\n\nThe input follows this Lark grammar:\nstart: "a"'
    assert code["parameters"]["properties"] == {"input": {"type": "string", "pattern": "^(?:[0-9]+)$"}}
    assert json.dumps({"input": PATCH}, ensure_ascii=False) in prompt


async def test_a_grammar_that_is_only_described_is_told_as_ignored() -> None:
    world = tool_world("hermes", "Yes")
    response = await world.post("/v1/responses", {"input": "Hi", "tools": [CODE, LARK]})
    assert response.headers["X-Chairlift-Ignored"] == "tools[1].format"


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("tools[0].name", {"tools": [{"type": "custom"}]}),
        ("tools[0].format.type", {"tools": [APPLY | {"format": {"type": "json"}}]}),
        ("tools[0].format.syntax", {"tools": [APPLY | {"format": {"type": "grammar", "syntax": "bnf"}}]}),
        ("tools[0].format.definition", {"tools": [APPLY | {"format": {"type": "grammar", "syntax": "lark"}}]}),
        ("input[1].input", {"input": [USER, {k: v for k, v in CALL.items() if k != "input"}]}),
        ("tool_choice", {"tools": [APPLY], "tool_choice": {"type": "custom", "name": "other"}}),
    ],
)
async def test_errors_name_the_field(field: str, body: dict[str, Any]) -> None:
    response = await tool_world("hermes", "Yes").post("/v1/responses", {"input": "Hi", **body})
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)


async def test_a_choice_may_name_a_custom_tool() -> None:
    world = tool_world("hermes", hermes(("apply_patch", '{"input": "a"}')))
    named = {"type": "custom", "name": "apply_patch"}
    for choice in (named, {"type": "allowed_tools", "mode": "required", "tools": [named]}):
        response = await whole(world, tools=[APPLY, CODE], tool_choice=choice)
        assert [item["input"] for item in response["output"]] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "text", "is_whole"),
    [
        ('{"patch": "x"}', '{"patch": "x"}', True),
        ('{"input":"a\\udc00"}', "a\ufffd\ufffd\ufffd", True),
        ('{"input":"\\ud83d\\ud83d\\ude00b"}', "\ufffd\ufffd\ufffd😀b", True),
        ('{"input":"a\\x"}', "a", False),
        ("[1", "[1", False),
    ],
)
def test_arguments_that_no_grammar_held_are_shown_as_they_stand(arguments: str, text: str, is_whole: bool) -> None:
    read = InputText()
    told = "".join(map(read.add, arguments))
    rest, found = read.end()
    assert (told + rest, found) == (text, is_whole)
