"""What clients and test suites of others look for in bodies and answers, beyond what each route's tests say."""

from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.small_tokenizer import tokenizer_of
from fakes.sse import events
from fakes.tool_worlds import tool_world

HI = [{"role": "user", "content": "Hi"}]
CHAT, COMPLETION = ("/v1/chat/completions", {"messages": HI}), ("/v1/completions", {"prompt": "Hi"})


async def answered(world: HttpWorld, path: str, body: dict[str, Any]) -> Any:
    response = await world.post(path, body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_fields_that_clients_read_are_null_where_nothing_was_asked() -> None:
    chat = await answered(HttpWorld(), *CHAT)
    completion = await answered(HttpWorld(), *COMPLETION)
    holders = [(chat, "prompt_logprobs", "prompt_token_ids"), (chat["choices"][0], "token_ids")]
    holders += [(completion["choices"][0], "prompt_logprobs", "prompt_token_ids", "token_ids")]
    holders += [(chat["choices"][0]["message"], "refusal")]
    for holder, *names in holders:
        assert {name: holder[name] for name in names} == dict.fromkeys(names)
    scored = await answered(HttpWorld(), CHAT[0], CHAT[1] | {"logprobs": True})
    assert scored["choices"][0]["logprobs"]["refusal"] is None


async def test_a_response_has_what_open_responses_requires() -> None:
    body = {"input": "Hi", "presence_penalty": 0.5, "max_tool_calls": 3, "prompt_cache_key": "k"}
    function = {"type": "function", "name": "f"}
    response = await answered(tool_world("hermes", "Yes"), "/v1/responses", body | {"tools": [function]})
    expected = {"presence_penalty": 0.5, "frequency_penalty": 0.0, "max_tool_calls": 3, "service_tier": "default",
                "safety_identifier": None, "prompt_cache_key": "k"}  # fmt: skip
    assert {name: response[name] for name in expected} == expected
    assert response["tools"] == [function | {"description": None, "parameters": None, "strict": None}]
    assert "user" not in response


@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        (CHAT[0], CHAT[1] | {"verbosity": "low"}, "verbosity"),
        ("/v1/responses", {"input": "Hi", "text": {"verbosity": "low"}}, "text.verbosity"),
        ("/v1/responses", {"input": "Hi", "truncation": "auto"}, "truncation"),
    ],
)
async def test_hints_are_ignored_and_named(path: str, body: dict[str, Any], ignored: str) -> None:
    response = await HttpWorld().post(path, body)
    assert (response.status_code, response.headers["X-Chairlift-Ignored"]) == (200, ignored)


@pytest.mark.parametrize(("path", "body"), [CHAT, COMPLETION])
async def test_no_limit_is_what_fits(path: str, body: dict[str, Any]) -> None:
    world = HttpWorld()
    await answered(world, path, body | {"max_tokens": -1})
    assert world.client.requests[0].params.max_tokens is None


async def test_another_role_is_the_chat_template_s() -> None:
    world = HttpWorld()
    await answered(world, CHAT[0], {"messages": [*HI, {"role": "ipython", "content": "42"}]})
    assert "<|im_start|>ipython\n42" in world.tokenizer.decode(world.client.requests[0].prompt, skip_special=False)


async def test_a_role_that_the_template_leaves_out_is_refused() -> None:
    template = "{% for m in messages %}{% if m.role != 'ipython' %}{{ m.content }}{% endif %}{% endfor %}"
    world = HttpWorld(tokenizer=tokenizer_of(template, ()))
    response = await world.post(CHAT[0], {"messages": [*HI, {"role": "ipython", "content": "42"}]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages[1].role")


@pytest.mark.parametrize("said", [{"refusal": "No"}, {"content": [{"type": "refusal", "refusal": "No"}]}])
async def test_a_refusal_of_the_assistant_is_what_it_said(said: dict[str, Any]) -> None:
    world = HttpWorld()
    await answered(world, CHAT[0], {"messages": [*HI, {"role": "assistant"} | said, *HI]})
    assert "<|im_start|>assistant\nNo" in world.tokenizer.decode(world.client.requests[0].prompt, skip_special=False)


@pytest.mark.parametrize(("path", "body"), [CHAT, COMPLETION, ("/v1/responses", {"input": "Hi"})])
async def test_routes_are_there_without_a_version(path: str, body: dict[str, Any]) -> None:
    world = HttpWorld()
    assert (await answered(world, path.removeprefix("/v1"), body))["model"]
    assert (await world.get("/models")).json() == (await world.get("/v1/models")).json()


async def test_usage_of_each_chunk_is_for_those_who_ask_for_usage() -> None:
    for asked, has_usage in (({}, False), ({"include_usage": True}, True)):
        body = {"messages": HI, "stream": True, "stream_options": {"continuous_usage_stats": True} | asked}
        first, *_ = events((await HttpWorld().post(CHAT[0], body)).text)
        assert bool(first.get("usage")) == has_usage


async def test_a_bias_names_the_keys_that_are_no_tokens() -> None:
    response = await HttpWorld().post(CHAT[0], CHAT[1] | {"logit_bias": {"5": 1, "a word": 1, "b": 1}})
    assert response.json()["error"]["message"] == "logit_bias: the keys must be token ids, got 'a word', 'b'"


@pytest.mark.parametrize("bias", [[[5, 1]], [5, 1], "5"])
async def test_a_bias_that_is_no_map_is_told_what_to_send(bias: object) -> None:
    response = await HttpWorld().post(CHAT[0], CHAT[1] | {"logit_bias": bias})
    assert response.json()["error"]["message"].endswith('logits, such as {"42": -100}')
