"""Errors, keys and models in Anthropic's form."""

import re
from pathlib import Path
from typing import Any

import pytest

from fakes.anthropic_api import HI
from fakes.http_world import HttpWorld

ASKED = {"max_tokens": 9, "messages": HI}
VERSION = {"anthropic-version": "2023-06-01"}


async def failed(world: HttpWorld, body: Any = ASKED, path: str = "/v1/messages", **headers: str) -> tuple[int, str]:
    async with world.http() as http:
        response = await http.post(path, json=body, headers={"X-Request-Id": "a-b", **headers})
    told = response.json()
    assert told.keys() == {"type", "error", "request_id"}
    assert (told["type"], told["request_id"]) == ("error", "a-b")
    assert told["error"].keys() == {"type", "message"} and told["error"]["message"]
    return response.status_code, told["error"]["type"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_each_status_has_its_type(path: str) -> None:
    assert await failed(HttpWorld(), ASKED | {"model": "large"}, path) == (404, "not_found_error")
    assert await failed(HttpWorld(), [], path) == (400, "invalid_request_error")
    assert await failed(HttpWorld(max_body_bytes=10), ASKED, path) == (413, "request_too_large")
    assert await failed(HttpWorld(api_key="a-secret-of-alice"), ASKED, path) == (401, "authentication_error")


async def test_a_server_that_cannot_answer_says_so() -> None:
    starting = HttpWorld()
    starting.client.is_ready = False
    assert await failed(starting) == (503, "overloaded_error")
    assert await failed(HttpWorld(max_waiting=0)) == (429, "rate_limit_error")
    late = HttpWorld()
    late.client.delay_s = 60
    assert await failed(late, **{"X-Deadline-Ms": "1"}) == (504, "timeout_error")
    assert await failed(HttpWorld(), path="/v1/messages/batches") == (404, "not_found_error")


@pytest.mark.parametrize("num", [64, 65, 200])
async def test_a_prompt_that_fills_the_context_is_told_in_anthropic_s_words(num: int) -> None:
    world = HttpWorld(room=64)
    body = ASKED | {"messages": [{"role": "user", "content": ""}]}
    counted = (await world.post("/v1/messages/count_tokens", body)).json()["input_tokens"]
    body["messages"] = [{"role": "user", "content": "x" * (num - counted)}]  # a token each
    response = await world.post("/v1/messages", body)
    told = response.json()["error"]
    assert (response.status_code, told["type"]) == (400, "invalid_request_error")
    most = 63 if num == 64 else 64  # a place is for output
    why = f"messages: {num} tokens leave no room for output"
    assert told["message"] == f"prompt is too long: {num} tokens > {most} maximum ({why})"


async def test_a_prompt_that_is_not_counted_to_its_end_is_told_with_about_its_tokens() -> None:
    async def refused(world: HttpWorld) -> str:
        return str((await world.post("/v1/messages", body)).json()["error"]["message"])

    body = ASKED | {"messages": [{"role": "user", "content": "Hello there. " * 4000}]}
    small, large = (HttpWorld(room=room, max_body_bytes=2**20) for room in (500, 8000))
    num = (await large.post("/v1/messages/count_tokens", body)).json()["input_tokens"]
    told = re.match(r"prompt is too long: about (\d+) tokens > 8000 maximum \(messages: more th", await refused(large))
    assert told is not None and abs(int(told[1]) - num) < num / 20
    message = "prompt is too long: about 13000 tokens > 500 maximum (messages: 52002 characters make "
    assert (await refused(small)).startswith(message)


async def test_another_method_is_refused_in_the_same_form() -> None:
    response = await HttpWorld().get("/v1/messages")
    assert (response.status_code, response.json()["error"]["type"]) == (405, "invalid_request_error")


async def test_a_key_is_taken_as_anthropic_s_clients_send_it() -> None:
    world = HttpWorld(api_key="a-secret-of-alice")
    for headers in ({"x-api-key": "a-secret-of-alice"}, {"Authorization": "Bearer a-secret-of-alice"}):
        async with world.http() as http:
            assert (await http.post("/v1/messages", json=ASKED, headers=headers)).status_code == 200
            assert (await http.post("/v1/messages/count_tokens", json=ASKED, headers=headers)).status_code == 200


async def test_a_key_pays_for_counting(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("- name: alice\n  key: a-secret-of-alice\n  requests_per_minute: 1\n")
    world = HttpWorld(api_key_file=file)
    key = {"x-api-key": "a-secret-of-alice"}
    async with world.http() as http:
        assert (await http.post("/v1/messages/count_tokens", json=ASKED, headers=key)).status_code == 200
    assert await failed(world, ASKED, "/v1/messages/count_tokens", **key) == (429, "rate_limit_error")


async def test_models_are_told_in_anthropic_s_form_to_its_clients() -> None:
    async with HttpWorld().http() as http:
        page = (await http.get("/v1/models", headers=VERSION)).json()
        one = (await http.get("/v1/models/org/small", headers=VERSION)).json()
        missing = await http.get("/v1/models/large", headers=VERSION)
        other = (await http.get("/v1/models")).json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "small", "org/small")
    assert page["data"][1] == one
    assert one == {
        "type": "model",
        "id": "org/small",
        "display_name": "org/small",
        "created_at": "2023-11-14T22:13:20Z",
        "lifecycle": "active",
        "max_input_tokens": 512,
        "max_tokens": 512,
    }
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
    assert other["object"] == "list"
