import asyncio
import json
import threading
from typing import Any

import pytest

from chairlift.text.tokenizer import Tokenizer
from fakes.http_world import HttpWorld, with_compat
from fakes.patience import HANG_S


async def test_the_root_says_what_is_served_and_where_to_go() -> None:
    world = HttpWorld()
    body = (await world.get("/")).json()
    assert (body["server"], body["models"]) == ("chairlift 1.2.3", ["small", "org/small"])
    assert (await world.get(body["routes"])).json()["paths"].keys() >= {body["chat"].removeprefix("POST ")}


async def test_models_lists_every_served_name() -> None:
    body = (await HttpWorld(model="/weights/small").get("/v1/models")).json()
    assert body["object"] == "list"
    assert [card["id"] for card in body["data"]] == ["small", "org/small"]
    assert body["data"][0] == {
        "id": "small",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "chairlift",
        "root": "/weights/small",
        "max_model_len": 512,
        "tool_format": "generic",
        "exact": False,
        "parent": None,
    }


async def test_one_model_is_found_by_a_name_with_a_slash() -> None:
    world = HttpWorld()
    assert (await world.get("/v1/models/org/small")).json()["id"] == "org/small"
    assert (await world.get("/v1/models/other")).status_code == 404


async def test_tokenize_and_detokenize_are_each_other_s_inverse() -> None:
    world = HttpWorld()
    body = (await world.post("/tokenize", {"prompt": "Hello wörld", "return_token_strs": True})).json()
    assert body["count"] == len(body["tokens"]) == len(body["token_strs"])
    assert body["max_model_len"] == 512
    assert (await world.post("/detokenize", {"tokens": body["tokens"]})).json() == {"prompt": "Hello wörld"}


async def test_the_tokenizer_s_own_tokens_and_template_are_told() -> None:
    world = HttpWorld()
    body = (await world.get("/tokenizer_info")).json()
    assert body["tokenizer_class"] and body["chat_template"] == world.tokenizer.chat_template
    [end] = (await world.post("/tokenize", {"prompt": body["eos_token"], "add_special_tokens": False})).json()["tokens"]
    assert end == world.tokenizer.eos_id


async def test_a_template_of_the_operator_is_not_told() -> None:
    body = (await HttpWorld(chat_template="{{ secret }}").get("/tokenizer_info")).json()
    assert body["chat_template"] is None


async def test_others_are_answered_while_many_tokens_are_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    world, may_end = HttpWorld(), threading.Event()
    monkeypatch.setattr(Tokenizer, "decode", lambda *_, **__: str(may_end.wait(HANG_S)))
    spelled = asyncio.ensure_future(world.post("/detokenize", {"tokens": [1] * 5000}))
    assert (await world.get("/health/live")).status_code == 200
    may_end.set()
    assert (await spelled).json() == {"prompt": "True"}


async def test_tokenize_takes_the_body_of_a_chat_and_reads_all_that_changes_its_prompt() -> None:
    world = HttpWorld()
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 9, "top_logprobs": 2}
    assert (await world.post("/tokenize", body)).status_code == 200
    refused = await world.post("/tokenize", body | {"tools": [{"type": "function"}]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[0].function")


async def test_tokenize_takes_messages() -> None:
    world = HttpWorld()
    body = (await world.post("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})).json()
    assert world.tokenizer.decode(body["tokens"], skip_special=False).startswith("<|im_start|>user\nHi")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [("/tokenize", {}, "prompt"), ("/detokenize", {"tokens": [10**6]}, "tokens"), ("/detokenize", {}, "tokens")],
)
async def test_bad_bodies_are_refused(path: str, body: Any, field: str) -> None:
    response = await HttpWorld().post(path, body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field


async def test_health_is_empty_and_version_says_it() -> None:
    world = HttpWorld()
    response = await world.get("/health")
    assert (response.status_code, response.content) == (200, b"")
    assert (await world.get("/version")).json() == {"version": "1.2.3"}


async def test_status_routes_are_one_event_each() -> None:
    world = with_compat(model_name="llama_7b", model_dtype="DataType.FLOAT32", seq_length=100)
    world.client.num_waiting = 5
    response = await world.get("/serving/get_bs")
    assert response.content == b'data: {"event": "message", "retry": 30000, "data": 8}\r\n\r\n'
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    response = await world.get("/serving/get_request_numbers")
    assert response.content == b'data: {"event": "message", "retry": 30000, "data": 5}\r\n\r\n'
    response = await world.get("/serving/get_serverd_model_info")
    assert response.text.startswith("data: {") and response.text.endswith("}\r\n\r\n")
    assert list(json.loads(response.text[6:]).items()) == [
        ("docker_label", "chairlift"),
        ("max_batch_total_tokens", 800),
        ("max_concurrent_requests", 5),
        ("max_input_length", 100),
        ("max_total_tokens", 8),
        ("model_device_type", "CANN"),
        ("model_dtype", "DataType.FLOAT32"),
        ("model_id", "llama_7b"),
        ("model_pipeline_tag", "text-generation"),
        ("version", "2.3"),
    ]
