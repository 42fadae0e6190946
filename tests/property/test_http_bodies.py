"""Whatever a body holds, the server answers it or says what is wrong with it; it never fails."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chairlift.server.llm_serving.request import Parameters
from chairlift.server.openai.requests import ChatRequest, CompletionRequest
from fakes.http_world import HttpWorld

numbers = st.one_of(
    st.integers(-2, 8),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.5, 1e-9, 1e300, float("nan"), float("inf")]),
)
plain = st.one_of(st.none(), st.booleans(), numbers, st.sampled_from(["", "a", "3", "True", "é", "\ud800", "Hello"]))
anything = st.recursive(
    plain | st.lists(st.sampled_from(["a", "", "\ud800"]), min_size=1, max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("a05é"), inner, max_size=2),
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]) | plain},
        optional={
            "content": anything | st.just([{"type": "text", "text": "a"}]),
            "name": plain,
            "tool_calls": anything,
        },
    ),
    max_size=3,
)


def fields(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from([*names, "tools", "nobody_knows"]), anything, max_size=4)


def post(world: HttpWorld, path: str, body: Any) -> tuple[int, str]:
    async def send() -> tuple[int, str]:
        async with world.http() as http:
            response = await http.post(path, content=json.dumps(body))
            return response.status_code, response.text

    return asyncio.run(send())


many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(status: int, text: str) -> None:
    assert status in (200, 400, 404), text
    if status != 200:
        error = json.loads(text)["error"]
        assert error["message"] and error["code"] in (str(status), "context_length_exceeded", "model_not_found")
    # A stream that has begun shows its failure as an event.
    assert '"code":500' not in text


@pytest.fixture(scope="module")
def world() -> HttpWorld:
    return HttpWorld("Hello é")


@many
@given(prompt=st.just("Hi") | st.just([5, 6]) | anything, body=fields(CompletionRequest.__struct_fields__))
def test_no_completion_body_breaks_the_server(world: HttpWorld, prompt: Any, body: dict[str, Any]) -> None:
    check(*post(world, "/v1/completions", {**body, "prompt": prompt}))


@many
@given(chat=messages, body=fields(ChatRequest.__struct_fields__))
def test_no_chat_body_breaks_the_server(world: HttpWorld, chat: Any, body: dict[str, Any]) -> None:
    check(*post(world, "/v1/chat/completions", {**body, "messages": chat}))


@many
@given(
    inputs=st.just("Hi") | anything, parameters=fields(Parameters.__struct_fields__) | anything, stream=st.booleans()
)
def test_no_llm_serving_body_breaks_the_server(world: HttpWorld, inputs: Any, parameters: Any, stream: bool) -> None:
    status, text = post(world, "/models/llama2", {"inputs": inputs, "parameters": parameters, "stream": stream})
    assert status in (200, 422), text
    assert "error304" not in text
