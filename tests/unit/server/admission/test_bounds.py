"""Admission under load, and what refused requests are told."""

import asyncio
import time
from typing import Any

import pytest

from chairlift.live.shared_memory.counts import Count
from chairlift.server.admission.bounds import Load
from chairlift.server.admission.rejected import Overloaded, Stopping
from fakes.http_world import HttpWorld
from fakes.loads import make_load

GENERATING = (
    ("/v1/completions", {"prompt": "Hi"}),
    ("/v1/completions", {"prompt": "Hi", "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True}),
    ("/models/small", {"inputs": "Hi"}),
    ("/models/small/generate", {"inputs": "Hi"}),
    ("/models/small/generate_stream", {"inputs": "Hi"}),
)


def open_counts(load: Load) -> list[int]:
    return [load.counts.total(count) for count in (Count.WAITING, Count.WAITING_TOKENS, Count.OPEN)]


def test_no_more_wait_than_may_and_a_first_token_makes_room() -> None:
    load = make_load(max_waiting=3)
    first, *_ = load.take([(2, 5), (1, 5)])
    with pytest.raises(Overloaded):
        load.take([(1, 1)])
    first.begin()
    load.take([(2, 1)])
    with pytest.raises(Overloaded):
        load.check(None)
    assert open_counts(load) == [3, 6, 2]


def test_prompt_tokens_are_bounded_too() -> None:
    load = make_load(max_waiting_tokens=10)
    load.take([(1, 6)])
    with pytest.raises(Overloaded):
        load.take([(1, 5)])
    load.take([(1, 4)])


def test_all_of_a_request_or_nothing_is_taken() -> None:
    load = make_load(max_waiting=3)
    load.take([(1, 1)])
    with pytest.raises(Overloaded):
        load.take([(1, 1), (2, 1)])
    assert open_counts(load) == [1, 1, 1]


def test_an_empty_queue_accepts_a_request_of_any_size() -> None:
    load = make_load(max_waiting=2, max_waiting_tokens=10)
    load.take([(5, 100)])
    with pytest.raises(Overloaded):
        load.take([(1, 1)])


def test_a_key_below_its_share_is_let_in_whatever_others_have_queued() -> None:
    keys = ("sk-alice-0123456789", "sk-bob-0123456789abc", "sk-carol-0123456789a")
    load = make_load(max_waiting=9, max_waiting_tokens=90, api_key=",".join(keys))
    alice, bob, carol = load.keys
    (flood,) = load.take([(8000, 80)], key=alice)
    for key, demand in ((alice, (1, 1)), (None, (1, 1))):
        with pytest.raises(Overloaded):
            load.take([demand], key=key)
    load.check(bob)
    (first,) = load.take([(2, 500)], key=bob)  # of any size: it waited for nothing
    with pytest.raises(Overloaded):  # beyond its share of the tokens
        load.check(bob)
    load.take([(1, 5), (1, 5)], key=carol)
    load.take([(1, 5)], key=carol)
    with pytest.raises(Overloaded):
        load.take([(1, 1)], key=carol)
    first.begin()
    load.take([(1, 1)], key=bob)
    flood.leave()
    load.take([(1, 1)], key=alice)


def test_leaving_twice_counts_once_and_without_a_token_not_as_served() -> None:
    load = make_load()
    served, left = load.take([(2, 7), (1, 3)])
    served.begin()
    for reservation in (served, served, left):
        reservation.leave()
    assert open_counts(load) == [0, 0, 0]
    assert load.counts.total(Count.FINISHED) == 2


def test_a_request_of_several_prompts_and_samples_is_open_once_until_it_ends() -> None:
    load = make_load()
    reservations = load.take([(4, 7), (4, 7), (4, 7)])
    load.take([(1, 1)])
    assert load.counts.total(Count.OPEN) == 2
    for reservation in reservations:
        reservation.begin()
        reservation.leave()
    assert load.counts.total(Count.OPEN) == 1


def test_retry_after_is_what_the_queue_takes_at_the_measured_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    load = make_load(max_waiting=60)
    for _ in range(20):  # two a second
        for reservation in load.take([(1, 10)] * 2):
            reservation.begin()
            reservation.leave()
        now[0] += 1.0
    load.take([(60, 10)])
    with pytest.raises(Overloaded) as refusal:
        load.check(None)
    assert refusal.value.retry_after_s == 30


def test_without_a_measure_retry_after_is_how_long_nothing_was_served(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    load = make_load(max_waiting=1)
    load.take([(1, 10)])
    waits = []
    for now[0] in (1000.1, 1012.0):
        with pytest.raises(Overloaded) as refusal:
            load.check(None)
        waits.append(refusal.value.retry_after_s)
    assert waits == [1, 12]


@pytest.mark.parametrize(("path", "body"), GENERATING)
async def test_every_generating_route_answers_429_in_its_own_shape(path: str, body: dict[str, Any]) -> None:
    world = HttpWorld(max_waiting=1)
    world.context.load.take([(1, 1)])
    response = await world.post(path, body)
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) >= 1
    said = response.json()
    message = said["detail"] if path.startswith("/models") else said["error"]["message"]
    assert "1 requests with 1 prompt tokens are waiting already" in message
    assert not world.client.requests


@pytest.mark.parametrize(("path", "body"), GENERATING)
async def test_what_only_its_body_shows_to_be_too_much_is_refused_too(path: str, body: dict[str, Any]) -> None:
    world = HttpWorld(max_waiting_tokens=10)
    world.context.load.take([(1, 9)])
    long = "Hello world " * 5
    body = {key: [{"role": "user", "content": long}] if key == "messages" else long if value == "Hi" else value
            for key, value in body.items()}  # fmt: skip
    response = await world.post(path, body)
    assert response.status_code == 429
    assert open_counts(world.context.load) == [1, 9, 1]


async def test_n_samples_count_as_n() -> None:
    world = HttpWorld(max_waiting=4)
    world.context.load.take([(1, 1)])
    assert (await world.post("/v1/completions", {"prompt": "Hi", "n": 4})).status_code == 429
    assert (await world.post("/v1/completions", {"prompt": "Hi", "n": 3})).status_code == 200
    assert (await world.post("/v1/completions", {"prompt": ["Hi", "Ho"], "n": 2})).status_code == 429


@pytest.mark.parametrize(("path", "body"), GENERATING)
async def test_nothing_stays_counted_when_a_request_is_over(path: str, body: dict[str, Any]) -> None:
    world = HttpWorld()
    assert (await world.post(path, body)).status_code == 200
    world.client.fails_at = 1
    await world.post(path, body)
    world.client.refusal = (None, "no")
    await world.post(path, body)
    world.client.is_ready = False
    await world.post(path, body)
    assert open_counts(world.context.load) == [0, 0, 0]


@pytest.mark.parametrize(("path", "body"), GENERATING)
async def test_while_stopping_whatever_asks_for_work_gets_503_and_an_end(path: str, body: dict[str, Any]) -> None:
    world = HttpWorld()
    world.context.load.is_draining = True
    response = await world.post(path, body)
    assert (response.status_code, response.headers["connection"]) == (503, "close")
    assert "retry-after" in response.headers
    assert (await world.get("/v1/models")).status_code == 200


async def test_ending_all_tells_all_clients_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = HttpWorld("Hello world " * 20)
    world.client.delay_s = 0.01
    asked = [asyncio.create_task(world.post(path, body)) for path, body in GENERATING]
    while open_counts(world.context.load)[2] < len(asked):
        await asyncio.sleep(0.001)
    world.context.load.end_all()
    for response in await asyncio.gather(*asked):
        assert response.status_code == 503 or "the server is stopping" in response.text or "error304" in response.text
    assert open_counts(world.context.load) == [0, 0, 0]


async def test_load_is_idle_while_no_request_for_work_is_in_flight() -> None:
    load = make_load()
    assert load.is_idle.is_set()
    with load.in_flight():
        with load.in_flight():
            pass
        assert not load.is_idle.is_set()
    assert load.is_idle.is_set()
    load.is_draining = True
    with pytest.raises(Stopping), load.in_flight():
        pass
