"""An llm-serving client, reading what its specification promises, against the whole server."""

import json
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S
from fakes.served import Served

GREEDY = {"do_sample": "False", "max_new_tokens": 8, "return_full_text": "True"}
TOKEN_KEYS = ["id", "logprob", "special", "text"]
FULL_KEYS = [
    "generated_text", "finish_reason", "generated_tokens", "prefill", "seed", "tokens", "top_tokens", "details",
]  # fmt: skip


@pytest.fixture(scope="module")
def http(server: Served) -> Any:
    with httpx.Client(base_url=server.url, timeout=HANG_S) as client:
        yield client


def ask(http: httpx.Client, path: str, **parameters: Any) -> httpx.Response:
    response = http.post(path, json={"inputs": "Hello world", "parameters": GREEDY | parameters})
    assert response.status_code == 200
    return response


def test_the_full_answer_has_its_keys_in_order(http: httpx.Client) -> None:
    response = ask(http, "/models/llama2/generate")
    assert "content-type" not in response.headers
    assert response.text.endswith("}\n") and response.text.count("\n") == 1
    answer = json.loads(response.text)
    assert list(answer) == FULL_KEYS
    assert [list(token) for token in answer["tokens"]] == [TOKEN_KEYS] * answer["generated_tokens"]
    assert answer["prefill"] == [answer["tokens"][0]]
    assert answer["top_tokens"] == [[answer["tokens"][0]]]
    assert "".join(token["text"] for token in answer["tokens"]) == answer["generated_text"]
    assert all(token["special"] == (token["text"] == "") for token in answer["tokens"])


def test_the_stream_is_lines_of_json_with_a_list_of_one_and_a_summary(http: httpx.Client) -> None:
    full = json.loads(ask(http, "/models/llama2/generate").text)
    response = ask(http, "/models/llama2/generate_stream", return_protocol="sse")
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert all(list(line) == ["event", "retry", "data"] and len(line["data"]) == 1 for line in lines)
    *tokens, summary = [line["data"][0] for line in lines]
    assert all(list(token) == ["details", "generated_text", "tokens", "top_tokens"] for token in tokens)
    assert "".join(token["generated_text"] for token in tokens) == summary["generated_text"] == full["generated_text"]
    assert list(summary) == ["details", *FULL_KEYS[:-1]]
    assert summary["tokens"] == [token["tokens"] for token in tokens] == full["tokens"]


def test_the_other_protocol_is_data_lines(http: httpx.Client) -> None:
    response = ask(http, "/models/internlm/generate_stream", return_protocol="plain")
    lines = response.text.splitlines()
    assert all(line.startswith('data:{"') for line in lines)
    *tokens, summary = [json.loads(line.removeprefix("data:")) for line in lines]
    assert list(summary) == FULL_KEYS
    assert "".join(token["generated_text"] for token in tokens) == summary["generated_text"]


def test_the_stream_field_decides_on_the_plain_route_and_the_name_may_be_anything(http: httpx.Client) -> None:
    body = {"inputs": "Hello", "parameters": GREEDY | {"return_full_text": "False"}}
    full = http.post("/models/any/name", json=body)
    stream = http.post("/models/any/name", json=body | {"stream": "true"})
    assert json.loads(full.text)["generated_tokens"] == len(stream.text.splitlines())


def test_the_last_token_of_a_reply_cut_by_length_keeps_its_text(http: httpx.Client) -> None:
    answer = json.loads(ask(http, "/models/llama2/generate", max_new_tokens="1").text)
    assert (answer["finish_reason"], answer["generated_tokens"]) == ("length", 1)
    assert answer["generated_text"] != ""


def test_a_prompt_out_of_range_is_told_as_text(http: httpx.Client) -> None:
    answer = json.loads(ask(http, "/models/llama2/generate", max_new_tokens=200_000).text)
    assert answer["generated_text"] == "Error202: prompt out of range"
    assert (answer["finish_reason"], answer["generated_tokens"]) == ("prompt_out_of_range", 0)
    line = ask(http, "/models/llama2/generate_stream", max_new_tokens=200_000).text.splitlines()[0]
    assert json.loads(line)["data"][0]["generated_text"] == "Error202: prompt out of range"


def test_an_empty_prompt_is_told_as_text(http: httpx.Client) -> None:
    response = http.post("/models/llama2/generate", json={"inputs": ""})
    assert (response.status_code, response.json()["generated_text"]) == (200, "Error203: prompt token empty")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"parameters": {}}, ["body", "inputs"]),
        ({"inputs": "a", "parameters": {"max_new_tokens": 0}}, ["body", "parameters", "max_new_tokens"]),
        ({"inputs": "a", "parameters": {"do_sample": "maybe"}}, ["body", "parameters", "do_sample"]),
        ({"inputs": "a", "parameters": {"top_k": "5.0"}}, ["body", "parameters", "top_k"]),
    ],
)
def test_a_bad_body_is_422_and_names_the_place(http: httpx.Client, body: object, where: list[str]) -> None:
    response = http.post("/models/llama2", json=body)
    assert response.status_code == 422
    assert [error["loc"] for error in response.json()["detail"]] == [where]


def test_the_status_routes_answer_one_event_each(http: httpx.Client) -> None:
    def event(path: str) -> Any:
        response = http.get(path)
        assert response.text.startswith("data: ") and response.text.endswith("\r\n\r\n")
        return json.loads(response.text.removeprefix("data: "))

    assert event("/serving/get_bs") == {"event": "message", "retry": 30000, "data": 8}
    assert event("/serving/get_request_numbers") == {"event": "message", "retry": 30000, "data": 0}
    info = event("/serving/get_serverd_model_info")
    assert (info["model_id"], info["max_total_tokens"], info["model_device_type"]) == ("tiny", 8, "CANN")
