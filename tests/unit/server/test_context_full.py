"""What does not fit the context is refused with the code and the words by which OpenAI's clients know it."""

from typing import Any

import pytest

from fakes.http_world import HttpWorld

LONG = "Hello there. " * 30
HI = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("path", "body", "field", "why"),
    [
        ("/v1/completions", {"prompt": [5] * 80}, "prompt", "80 tokens leave no room for output"),
        ("/v1/completions", {"prompt": [5] * 5000}, "prompt", "5000 tokens leave no room for output"),
        ("/v1/completions", {"prompt": LONG * 50}, "prompt", "19500 characters make more than 63 tokens"),
        ("/v1/completions", {"prompt": [5] * 9, "max_tokens": 60}, "max_tokens", "at most 55 fit after a prompt of 9"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, "messages", "leave no room"),
        ("/v1/chat/completions", {"messages": HI, "max_completion_tokens": 64}, "max_completion_tokens", "at most"),
        ("/v1/chat/completions", {"messages": HI, "max_tokens": 64, "stream": True}, "max_tokens", "at most"),
        ("/v1/responses", {"input": LONG}, "input", "leave no room"),
        ("/v1/responses", {"input": LONG * 50}, "input", "characters make more than 63 tokens"),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 64}, "max_output_tokens", "at most"),
    ],
)
async def test_the_context_s_length_and_the_field_are_named(
    path: str, body: dict[str, Any], field: str, why: str
) -> None:
    response = await HttpWorld(room=64).post(path, body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (400, "context_length_exceeded", "BadRequestError")
    assert error["param"] == field
    assert error["message"].startswith(f"{field}: This model's maximum context length is 64 tokens; ")
    assert why in error["message"]


async def test_a_text_that_a_route_does_not_take_is_no_matter_of_the_context() -> None:
    world = HttpWorld(max_body_bytes=2**24)
    response = await world.post("/tokenize", {"prompt": "Hello there. " * 1_000_000})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "400")
