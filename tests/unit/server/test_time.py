"""Requests that time out."""

import itertools
import time
from typing import Any

import pytest

from chairlift.server.admission.gate import TimeLimit
from fakes.http_world import HttpWorld
from fakes.sse import events

LONG = "Hello world " * 40
ASKED = (
    ("/v1/completions", {"prompt": "Hi", "max_tokens": 100}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    ("/models/small/generate", {"inputs": "Hi"}),
)


def stalled_world(at: int = 0, **settings: Any) -> HttpWorld:
    world = HttpWorld(LONG, **settings)
    world.client.stalls_at = at
    return world


@pytest.mark.parametrize(("path", "body"), ASKED)
async def test_an_answer_that_does_not_come_in_time_is_504_and_its_request_freed(
    path: str, body: dict[str, Any]
) -> None:
    world = stalled_world()
    before = time.monotonic()
    response = await world.post(path, body | {"timeout": 0.3})
    assert response.status_code == 504
    assert time.monotonic() - before > 0.29
    assert world.client.requests[0].aborts == [None]


@pytest.mark.parametrize(("path", "body"), ASKED)
async def test_the_header_and_the_servers_maximum_count_as_well(path: str, body: dict[str, Any]) -> None:
    async with stalled_world().http() as http:
        assert (await http.post(path, json=body, headers={"X-Deadline-Ms": "100"})).status_code == 504
    assert (await stalled_world(max_request_seconds=0.1).post(path, body)).status_code == 504
    assert (await stalled_world(max_request_seconds=0.1).post(path, body | {"timeout": 3600})).status_code == 504


@pytest.mark.parametrize(("path", "body"), ASKED)
async def test_a_clock_that_is_set_neither_ends_a_request_nor_gives_it_more_time(
    path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, years = time.time(), itertools.cycle([10**9, -(10**9)])
    monkeypatch.setattr(time, "time", lambda: now + next(years))
    assert (await HttpWorld(LONG).post(path, body | {"timeout": 60})).status_code == 200
    assert (await stalled_world().post(path, body | {"timeout": 0.1})).status_code == 504


async def test_a_stream_that_has_begun_ends_with_an_error_event() -> None:
    world = stalled_world(at=3)
    response = await world.post("/v1/completions", {"prompt": "Hi", "stream": True, "max_tokens": 100, "timeout": 1})
    assert response.status_code == 200
    *chunks, error, done = events(response.text)
    assert len(chunks) == 3
    assert error["error"]["code"] == "504"
    assert done == "[DONE]"


async def test_the_engine_may_be_the_first_to_notice() -> None:
    world = HttpWorld(LONG)
    world.client.times_out_at = 0
    assert (await world.post("/v1/completions", {"prompt": "Hi", "timeout": 60})).status_code == 504


async def test_the_engine_is_told_when_and_policies_that_it_is_due_then() -> None:
    world, before = HttpWorld(), time.monotonic()
    for body in ({"timeout": 60}, {"timeout": 60, "deadline_s": 5}, {}):
        await world.post("/v1/completions", {"prompt": "Hi"} | body)
    given, both, none = world.client.requests
    assert given.expires is not None
    assert before + 60 <= given.expires <= time.monotonic() + 60
    assert [each.attributes.deadline_s for each in (given, both, none)] == [60, 5, None]
    assert none.expires is None


async def test_a_request_that_expires_before_it_starts_never_reaches_the_engine() -> None:
    world = HttpWorld(max_request_seconds=1e-9)
    assert (await world.post("/v1/completions", {"prompt": "Hi"})).status_code == 504
    assert not world.client.requests


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "soon", "", "9" * 13])
async def test_a_header_that_is_no_time_is_refused_by_name(value: str) -> None:
    async with HttpWorld().http() as http:
        response = await http.post("/v1/completions", json={"prompt": "Hi"}, headers={"X-Deadline-Ms": value})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "X-Deadline-Ms")


@pytest.mark.parametrize("value", [0, -1, "soon"])
async def test_a_timeout_that_is_no_time_is_refused_by_name(value: object) -> None:
    response = await HttpWorld().post("/v1/completions", {"prompt": "Hi", "timeout": value})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "timeout")
    assert (await HttpWorld().post("/models/small", {"inputs": "Hi", "timeout": value})).status_code == 422


def test_the_least_of_all_times_counts() -> None:
    before = time.monotonic()
    left = TimeLimit(max_s=50.0, given_s=20.0)
    left.allow(30.0)
    left.allow(None)
    assert left.given_s == 20.0
    left.allow(5.0)
    assert left.expires is not None
    assert before + 5.0 <= left.expires <= time.monotonic() + 5.0
    assert TimeLimit(None, None).expires is None
