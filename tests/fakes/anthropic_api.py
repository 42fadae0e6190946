"""Anthropic's routes as its clients use them: tools in its form, answers whole and streamed."""

import json
from typing import Any

from fakes import tool_worlds
from fakes.http_world import HttpWorld

HI = [{"role": "user", "content": "Hi"}]
TOOLS = [
    {"name": each["function"]["name"], "input_schema": each["function"].get("parameters", {"type": "object"})}
    for each in tool_worlds.TOOLS
]
NOW = TOOLS[1]


async def ask(world: HttpWorld, **body: Any) -> Any:
    """A message, put together from its events where it is streamed."""
    response = await world.post("/v1/messages", {"max_tokens": 4096, "messages": HI, **body})
    assert response.status_code == 200, response.text
    return message_of(read_events(response.text)) if body.get("stream") else response.json()


async def submitted(world: HttpWorld, **body: Any) -> Any:
    await ask(world, **body)
    return world.client.requests[-1]


async def prompt_of(world: HttpWorld, **body: Any) -> str:
    return world.tokenizer.decode((await submitted(world, **body)).prompt, skip_special=False)


def read_events(text: str) -> list[dict[str, Any]]:
    parts = text.split("\n\n")
    assert parts.pop() == ""
    found = []
    for part in parts:
        name, data = part.split("\n")
        assert data.startswith("data: ")
        found.append(json.loads(data[6:]))
        assert name == f"event: {found[-1]['type']}"
    return found


def message_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Strict about their order."""
    start, ping, *middle, delta, stop = events
    assert [each["type"] for each in (start, ping, delta, stop)] == [
        "message_start", "ping", "message_delta", "message_stop"
    ]  # fmt: skip
    message: dict[str, Any] = start["message"]
    assert message["content"] == [] and message["stop_reason"] is None
    texts: list[str] | None = None  # of the open block
    for event in middle:
        if event["type"] == "content_block_start":
            assert texts is None and event["index"] == len(message["content"])
            message["content"].append(dict(event["content_block"]))
            texts = []
            continue
        assert texts is not None and event["index"] == len(message["content"]) - 1
        block = message["content"][-1]
        if event["type"] == "content_block_stop":
            if block["type"] == "tool_use":
                block["input"] = json.loads("".join(texts))
            texts = None
            continue
        assert event["type"] == "content_block_delta"
        _extend(block, event["delta"], texts)
    assert texts is None
    return message | delta["delta"] | {"usage": message["usage"] | delta["usage"]}


def _extend(block: dict[str, Any], delta: dict[str, Any], texts: list[str]) -> None:
    match block["type"], delta["type"]:
        case "text", "text_delta":
            block["text"] += delta["text"]
        case "thinking", "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "thinking", "signature_delta":
            block["signature"] = delta["signature"]
        case "tool_use", "input_json_delta":
            texts.append(delta["partial_json"])
        case odd:
            raise AssertionError(odd)
