"""What a server must refuse, and that each refusal names the field and the limit; nothing it refuses harms it."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S
from fakes.served import Served
from fakes.tiny_model import CONTEXT

CHAT = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def http(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=HANG_S) as client:
        yield client


@pytest.fixture(autouse=True)
def _still_serves(http: httpx.Client) -> Iterator[None]:
    yield
    assert http.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"prompt": [5] * (CONTEXT + 1)}, "prompt", [str(CONTEXT + 1), str(CONTEXT)]),
        ({"prompt": "Hi", "max_tokens": CONTEXT}, "max_tokens", [str(CONTEXT)]),
        ({"prompt": ""}, "prompt", ["empty"]),
        ({"prompt": []}, "prompt", ["empty"]),
        ({"prompt": [5, -1]}, "prompt", ["-1"]),
        ({"prompt": [5, 100_000]}, "prompt", ["100000", "vocabulary"]),
        ({"prompt": {"text": "Hi"}}, "prompt", []),
        ({"prompt": "Hi", "max_tokens": "many"}, "max_tokens", []),
        ({"prompt": "Hi", "max_tokens": 0}, "max_tokens", ["at least 1"]),
        ({"prompt": "Hi", "temperature": -0.5}, "temperature", ["between"]),
        ({"prompt": "Hi", "top_p": 1.5}, "top_p", ["between"]),
        ({"prompt": "Hi", "n": 9}, "n", ["running limit of 8"]),
        ({"prompt": "Hi", "logit_bias": {"100000": 1}}, "logit_bias", ["vocabulary"]),
        ({"prompt": "Hi", "stop": [""]}, "stop", ["empty"]),
        ({"prompt": "Hi", "suffix": "there"}, "suffix", []),
        ({"prompt": "Hi", "stream": "perhaps"}, "stream", []),
    ],
)
def test_a_bad_completion_is_400_and_names_the_field(
    http: httpx.Client, body: dict[str, Any], param: str, words: list[str]
) -> None:
    response = http.post("/v1/completions", json=body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["code"] == ("context_length_exceeded" if "maximum context length" in error["message"] else "400")
    assert error["param"] == param
    assert param in error["message"]
    assert all(word in error["message"] for word in words), error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({}, "messages"),
        ({"messages": CHAT, "response_format": {"type": "xml"}}, "response_format.type"),
        ({"messages": CHAT, "max_completion_tokens": CONTEXT}, "max_completion_tokens"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, None),
    ],
)
def test_a_bad_chat_is_400_and_names_the_field(http: httpx.Client, body: dict[str, Any], param: str | None) -> None:
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert param is None or error["param"] == param, error


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(
    "body", [b"{not json", b"", b"[1, 2]", b'{"prompt": "Hi", "temperature": NaN}', b'{"prompt": "\xff"}']
)
def test_what_is_not_json_is_400(http: httpx.Client, path: str, body: bytes) -> None:
    response = http.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_an_unknown_model_is_404_and_the_served_one_is_named(http: httpx.Client) -> None:
    for path, body in (("/v1/completions", {"prompt": "Hi"}), ("/v1/chat/completions", {"messages": CHAT})):
        response = http.post(path, json=body | {"model": "gpt-5"})
        assert response.status_code == 404
        assert "tiny" in response.json()["error"]["message"]
    assert http.get("/v1/models/gpt-5").status_code == 404
    assert http.get("/v2/nothing").status_code == 404


def test_a_body_over_the_limit_is_413_also_when_its_length_is_not_said(http: httpx.Client) -> None:
    body = b'{"prompt": "' + b"a" * 2**20 + b'"}'
    response = http.post("/v1/completions", content=body)
    assert response.status_code == 413
    assert str(2**20) in response.json()["error"]["message"]
    parts = (body[start : start + 65536] for start in range(0, len(body), 65536))
    assert http.post("/v1/completions", content=parts).status_code == 413


def test_a_refused_stream_has_a_status_and_no_events(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json={"prompt": "", "stream": True})
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


def test_an_unknown_field_is_ignored(http: httpx.Client) -> None:
    assert http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 1, "my_field": 1}).status_code == 200
