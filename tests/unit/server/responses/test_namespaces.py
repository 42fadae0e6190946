"""Functions in namespaces: one name for the model, two for the client."""

import json
from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.tool_worlds import tool_world
from unit.server.responses.test_responses_output import followed, streamed, whole, without_ids
from unit.text.responses.streams import hermes

SPAWN = {"type": "function", "name": "spawn", "description": "Starts an agent.", "parameters": {"type": "object"}}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Sub-agents.",
    "tools": [SPAWN, SPAWN | {"name": "end"}],
}
RIVALS = AGENTS | {"name": "rivals", "description": None}
TOOLS = [{"type": "web_search"}, SPAWN | {"name": "now"}, AGENTS]
USER = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "spawn", "namespace": "agents", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "Done"}


async def prompt_of(**body: Any) -> str:
    world = tool_world("hermes", "Yes")
    await whole(world, **body)
    return world.tokenizer.decode(world.client.requests[-1].prompt, skip_special=False)


async def test_a_call_has_the_short_name_and_its_namespace() -> None:
    world = tool_world("hermes", hermes(("agents__spawn", "{}"), ("now", "{}")))
    response = await whole(world, tools=TOOLS)
    spawned, now = response["output"]
    assert (spawned["name"], spawned["namespace"]) == ("spawn", "agents")
    assert now["name"] == "now" and "namespace" not in now
    assert response["tools"] == [TOOLS[1] | {"strict": None}, AGENTS]
    assert without_ids(followed(await streamed(world, tools=TOOLS))) == without_ids(response)


async def test_events_of_a_call_have_the_namespace_from_its_first_one() -> None:
    told = await streamed(tool_world("hermes", hermes(("agents__spawn", "{}"))), tools=TOOLS)
    added = next(each["item"] for each in told if each["type"] == "response.output_item.added")
    assert (added["name"], added["namespace"]) == ("spawn", "agents")


async def test_the_model_sees_one_name_and_the_group_s_description_once() -> None:
    prompt = await prompt_of(tools=TOOLS)
    shown = json.loads(prompt.partition("\n")[0])
    assert [each["function"]["name"] for each in shown] == ["now", "agents__spawn", "agents__end"]
    assert [each["function"]["description"] for each in shown[1:]] == [
        "Sub-agents.\n\nStarts an agent.",
        "Starts an agent.",
    ]


async def test_a_call_of_the_history_is_taken_back() -> None:
    prompt = await prompt_of(tools=TOOLS, input=[USER, CALL, RESULT])
    assert '"name": "agents__spawn"' in prompt.partition("<tool_call>")[2]
    assert "tool agents__spawn call_1\nDone" in prompt


@pytest.mark.parametrize(
    "name", [{"name": "spawn", "namespace": "agents"}, {"name": "spawn"}, {"name": "agents__spawn"}]
)
@pytest.mark.parametrize("is_allowed", [False, True])
async def test_a_function_of_a_namespace_can_be_chosen(name: dict[str, str], is_allowed: bool) -> None:
    chosen = {"type": "function", **name}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}, chosen]}
    world = tool_world("hermes", "Yes")
    await whole(world, tools=TOOLS, tool_choice=allowed if is_allowed else chosen)
    grammar = str(world.client.requests[-1].params.structured_outputs)
    assert "agents__spawn" in grammar
    assert "agents__end" not in grammar and "now" not in grammar


def group(*tools: Any, **fields: Any) -> dict[str, Any]:
    return {"tools": [AGENTS | {"tools": list(tools)} | fields]}


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("tools[0].name", group(SPAWN, name="a b")),
        ("tools[0].name", group(SPAWN, name=None)),
        ("tools[0].description", group(SPAWN, description=5)),
        ("tools[0].tools", group()),
        ("tools[0].tools", {"tools": [{"type": "namespace", "name": "n"}]}),
        ("tools[0].tools[1].type", group(SPAWN, AGENTS)),
        ("tools[0].tools[0].type", group("spawn")),
        ("tools[0].tools[0].name", group(SPAWN | {"name": None})),
        ("tools[0].tools[0].name", group(SPAWN | {"name": "x" * 128})),
        ("tools[0].tools[0].description", group(SPAWN | {"description": 5})),
        ("tools[0].tools[1].parameters.type", group(SPAWN, SPAWN | {"name": "f", "parameters": {"type": "array"}})),
        ("tools[0].tools[1].name", group(SPAWN, SPAWN)),
        ("tools[1].tools[0].name", {"tools": [SPAWN | {"name": "agents__spawn"}, AGENTS]}),
        ("tools[1].tools[0].name", {"tools": [AGENTS, AGENTS]}),
        ("tool_choice.name", {"tools": [AGENTS, RIVALS], "tool_choice": {"type": "function", "name": "spawn"}}),
        ("tool_choice.namespace", {"tools": [AGENTS], "tool_choice": CALL | {"type": "function", "namespace": 5}}),
        ("tool_choice", {"tools": [AGENTS], "tool_choice": CALL | {"type": "function", "namespace": "other"}}),
    ],
)
async def test_a_bad_namespace_is_refused_by_its_place(field: str, body: dict[str, Any]) -> None:
    world = tool_world("hermes", "Yes")
    response = await world.post("/v1/responses", {"input": "Hi", **body})
    assert (response.status_code, response.json()["error"]["param"]) == (400, field), response.text
    assert world.client.requests == []


async def test_two_namespaces_may_have_functions_of_one_name() -> None:
    world: HttpWorld = tool_world("hermes", hermes(("rivals__end", "{}")))
    chosen = {"type": "function", "name": "end", "namespace": "rivals"}
    [item] = (await whole(world, tools=[AGENTS, RIVALS], tool_choice=chosen))["output"]
    assert (item["name"], item["namespace"]) == ("end", "rivals")
