"""Every refusal has the right status, OpenAI's shape, and names the field."""

from typing import Any

import httpx
import pytest

from chairlift.core.params import MAX_BIASES, MAX_STOP_IDS
from chairlift.text.stream import TextStream
from fakes.http_world import HttpWorld
from fakes.sse import events

HI = [{"role": "user", "content": "Hi"}]
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def error(response: httpx.Response, status: int) -> Any:
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["code"] in (CODES.get(status), str(status))
    return body["error"]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("prompt", {"prompt": ""}),
        ("prompt", {"prompt": []}),
        ("prompt", {"prompt": ["a", ""]}),
        ("prompt", {"prompt": [[]]}),
        ("prompt", {"prompt": ["a", 3]}),
        ("prompt", {"prompt": [[1], "a"]}),
        ("prompt", {"prompt": [-1]}),
        ("prompt", {"prompt": [10**6]}),
        ("prompt", {"prompt": ["a"] * 1025}),
        ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": -2}),
        ("min_tokens", {"min_tokens": 17}),
        ("temperature", {"temperature": -0.1}),
        ("top_p", {"top_p": 0}),
        ("top_p", {"top_p": 1.1}),
        ("top_k", {"top_k": -2}),
        ("min_p", {"min_p": -1}),
        ("repetition_penalty", {"repetition_penalty": 0}),
        ("presence_penalty", {"presence_penalty": 3}),
        ("n", {"n": 0}),
        ("n", {"n": 9}),
        ("best_of", {"n": 2, "best_of": 1}),
        ("best_of", {"best_of": 9}),
        ("best_of", {"best_of": 129}),
        ("best_of", {"best_of": 2, "stream": True}),
        ("beam_width", {"beam_width": 4}),
        ("length_penalty", {"length_penalty": 2.0}),
        ("beam_width", {"use_beam_search": True, "beam_width": 0}),
        ("beam_width", {"use_beam_search": True, "beam_width": 9}),
        ("beam_width", {"use_beam_search": True, "beam_width": 33}),
        ("n", {"use_beam_search": True, "beam_width": 2, "n": 3}),
        ("length_penalty", {"use_beam_search": True, "length_penalty": 11}),
        ("logprobs", {"use_beam_search": True, "logprobs": 0}),
        ("logprobs", {"use_beam_search": True, "logprobs": 0, "echo": True}),
        ("prompt_logprobs", {"use_beam_search": True, "prompt_logprobs": 0}),
        ("min_tokens", {"use_beam_search": True, "min_tokens": 1}),
        ("logit_bias", {"use_beam_search": True, "logit_bias": {"5": 1}}),
        ("repetition_penalty", {"use_beam_search": True, "repetition_penalty": 1.1}),
        ("presence_penalty", {"use_beam_search": True, "presence_penalty": 1}),
        ("frequency_penalty", {"use_beam_search": True, "frequency_penalty": 1}),
        ("deadline_s", {"deadline_s": 0}),
        ("seed", {"seed": 2**64}),
        ("seed", {"seed": 10**400}),
        ("stop", {"stop": ["a"] * 65}),
        ("stop", {"stop": "a" * 1025}),
        ("stop", {"stop": ""}),
        ("stop_token_ids", {"stop_token_ids": [10**6]}),
        ("logit_bias", {"logit_bias": {"x": 1}}),
        ("logit_bias", {"logit_bias": {str(token): 1 for token in range(MAX_BIASES + 1)}}),
        ("stop_token_ids", {"stop_token_ids": [1] * (MAX_STOP_IDS + 1)}),
        ("logit_bias", {"logit_bias": {"1000000": 1}}),
        ("logit_bias[5]", {"logit_bias": {"5": 101}}),
        ("logprobs", {"logprobs": 101}),
        ("stream_options", {"stream_options": {"include_usage": True}}),
        ("prompt_logprobs", {"stream": True, "prompt_logprobs": 1}),
        ("suffix", {"suffix": "end"}),
    ],
)
async def test_a_bad_completion_names_the_field(field: str, body: dict[str, Any]) -> None:
    world = HttpWorld()
    refused = error(await world.post("/v1/completions", {"prompt": "a", **body}), 400)
    assert refused["param"] == field
    assert refused["type"] == "BadRequestError"
    assert field in refused["message"]
    assert world.client.requests == [] or world.client.requests[0].aborts == [None]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("messages", {"messages": []}),
        ("messages[0].role", {"messages": [{"role": "a wizard", "content": "a"}]}),
        ("messages[0].content", {"messages": [{"role": "user"}]}),
        ("messages[0].content[0].type", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        ("messages[0].content[0].text", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        ("messages[1].tool_calls[0].id", {"messages": [*HI, {"role": "assistant", "content": "", "tool_calls": [{}]}]}),
        ("top_logprobs", {"top_logprobs": 2}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 101}),
        ("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True}),
        ("tools[0].function", {"tools": [{"type": "function"}]}),
        ("response_format.type", {"response_format": {"type": "json"}}),
        ("logprobs", {"logprobs": 5}),
    ],
)
async def test_a_bad_chat_names_the_field(field: str, body: dict[str, Any]) -> None:
    refused = error(await HttpWorld().post("/v1/chat/completions", {"messages": HI, **body}), 400)
    assert refused["param"] == field


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
async def test_an_unknown_model_is_not_found(path: str) -> None:
    body = {"model": "gpt-4", "messages": HI, "prompt": "a"}
    if path == "/tokenize":
        del body["messages"]
    refused = error(await HttpWorld().post(path, body), 404)
    assert refused["type"] == "NotFoundError"
    assert refused["param"] == "model"


async def test_a_body_over_the_limit_is_refused_with_or_without_a_length() -> None:
    world = HttpWorld(max_body_bytes=1000)

    async def endless() -> Any:
        for _ in range(20):
            yield b" " * 100

    async with world.http() as http:
        for content in (b" " * 1001, endless()):
            refused = error(await http.post("/v1/completions", content=content), 413)
            assert "1000 bytes" in refused["message"]
        llm_serving = await http.post("/models/llama2", content=b" " * 1001)
    assert llm_serving.status_code == 413
    assert "1000 bytes" in llm_serving.json()["detail"]


async def test_the_content_type_does_not_matter() -> None:
    world = HttpWorld()
    async with world.http() as http:
        response = await http.post("/v1/completions", content='{"prompt": "a"}', headers={"content-type": "text/plain"})
    assert response.status_code == 200


async def test_a_field_of_another_server_is_refused_with_what_to_use() -> None:
    refused = error(await HttpWorld().post("/v1/completions", {"prompt": "a", "grammar": 'root ::= "a"'}), 400)
    assert refused["message"] == "grammar: is not supported by this server; use guided_grammar"


async def test_routes_and_methods_that_do_not_exist() -> None:
    world = HttpWorld()
    lost = error(await world.get("/v1/nothing"), 404)
    assert (lost["type"], "/v1/nothing" in lost["message"]) == ("NotFoundError", True)
    wrong = error(await world.get("/v1/completions"), 405)
    assert wrong["type"] == "MethodNotAllowedError"
    assert wrong["message"] == "/v1/completions does not take GET but POST"
    response = await world.get("/models/llama2")
    assert (response.status_code, response.json()) == (405, {"detail": "Method Not Allowed"})


async def test_an_engine_that_is_not_ready_is_a_503() -> None:
    world = HttpWorld()
    world.client.is_ready = False
    for body in ({"prompt": "a"}, {"prompt": "a", "stream": True}):
        response = await world.post("/v1/completions", body)
        assert error(response, 503)["type"] == "ServiceUnavailableError"
        assert response.headers["retry-after"] == "1"
    assert (await world.get("/health")).status_code == 503


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_token_has_its_status(stream: bool) -> None:
    body = {"prompt": "a", "stream": stream}
    world = HttpWorld()
    world.client.dies_at = 0
    error(await world.post("/v1/completions", body), 503)
    world = HttpWorld()
    world.client.fails_at = 0
    assert "the runner failed" in error(await world.post("/v1/completions", body), 500)["message"]
    world = HttpWorld()
    world.client.refusal = ("prompt", "does not fit any more")
    assert error(await world.post("/v1/completions", body), 400)["param"] == "prompt"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/v1/chat/completions", {"messages": HI, "max_tokens": 9}, ("messages", "max_tokens", "stop")),
        (
            "/v1/chat/completions",
            {"messages": HI, "max_completion_tokens": 9},
            ("messages", "max_completion_tokens", "stop"),
        ),
        ("/v1/responses", {"input": [*HI, *HI]}, ("input", "max_output_tokens", "stop")),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 9}, ("input", "max_output_tokens", "stop")),
        ("/v1/messages", {"messages": HI, "max_tokens": 9}, ("messages", "max_tokens", "stop_sequences")),
    ],
)
async def test_what_the_engine_refuses_is_named_as_in_the_body(
    path: str, body: dict[str, Any], names: tuple[str, ...], stream: bool
) -> None:
    world = HttpWorld()
    for field, name in zip(("prompt", "max_tokens", "stop"), names, strict=True):
        world.client.refusal = (field, "does not fit any more")
        response = await world.post(path, body | {"stream": stream})
        assert response.status_code == 400
        assert response.json()["error"]["message"] == f"{name}: does not fit any more"


@pytest.mark.parametrize(("kind", "status"), [("fails_at", 500), ("dies_at", 503)])
async def test_a_failure_in_the_middle_of_a_stream_is_an_event_and_the_stream_ends(kind: str, status: int) -> None:
    world = HttpWorld()
    setattr(world.client, kind, 2)
    response = await world.post("/v1/chat/completions", {"messages": HI, "stream": True})
    assert response.status_code == 200
    *parts, failed, done = events(response.text)
    assert len(parts) == 2
    assert failed["error"]["code"] == str(status)
    assert done == "[DONE]"


async def test_a_bug_shows_no_traceback_and_is_logged_under_the_request_s_id(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = HttpWorld()
    monkeypatch.setattr(TextStream, "push", lambda stream, token: 1 / 0)
    async with world.http() as http:
        response = await http.post("/v1/completions", json={"prompt": "a"}, headers={"x-request-id": "my-id"})
    refused = error(response, 500)
    assert "my-id" in refused["message"]
    assert "division" not in response.text
    assert response.headers["x-request-id"] == "my-id"
    assert "my-id" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert world.client.requests[0].aborts == [None]


async def test_every_answer_has_a_request_id() -> None:
    world = HttpWorld()
    async with world.http() as http:
        first, second = await http.get("/health"), await http.get("/nothing")
        odd = await http.get("/health", headers={"x-request-id": "x" * 200})
    ids = [response.headers["x-request-id"] for response in (first, second, odd)]
    assert len(set(ids)) == 3
    assert all(len(name) == 32 for name in ids)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/completions", {"prompt": ["Hi"] * 1024, "n": 9}, "prompt"),
        ("/v1/completions", {"prompt": ["Hi"] * 1024, "best_of": 9}, "prompt"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}] * 4097}, "messages"),
        ("/tokenize", {"messages": [{"role": "user", "content": ""}] * 4097}, "messages"),
    ],
)
async def test_one_body_holds_no_more_than_can_be_prepared_at_once(path: str, body: Any, field: str) -> None:
    response = await HttpWorld(max_body_bytes=2**20).post(path, body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)
    assert "at most" in response.json()["error"]["message"]
