import asyncio

import pytest

from chairlift.live.shared_memory.counts import Count
from chairlift.server import health
from fakes.http_world import HttpWorld


async def test_a_server_that_answers_is_alive() -> None:
    world = HttpWorld()
    world.client.is_ready = False
    world.context.load.is_draining = True
    assert (await world.get("/health/live")).status_code == 200


async def test_ready_is_a_server_with_an_engine_that_is_not_stopping() -> None:
    world = HttpWorld()
    assert (await world.get("/health/ready")).status_code == 200
    world.client.is_ready = False
    response = await world.get("/health/ready")
    assert (response.status_code, response.json()) == (503, {"status": "the engine is not ready"})
    world.client.is_ready = True
    world.context.load.is_draining = True
    response = await world.get("/health/ready")
    assert (response.status_code, response.json()) == (503, {"status": "the server is stopping"})


async def test_a_server_is_ready_when_all_front_ends_are() -> None:
    world = HttpWorld()
    world.context.load.counts.put(Count.HAS_BEGUN, 0)
    for path in ("/health", "/health/ready"):
        assert (await world.get(path)).status_code == 503
    world.context.load.counts.put(Count.HAS_BEGUN, 1)
    assert (await world.get("/health/ready")).status_code == 200


@pytest.mark.parametrize(("timeout_s", "status"), [(60.0, 503), (70.0, 200), (0.0, 200)])
async def test_an_engine_that_hangs_is_told_of_in_words(timeout_s: float, status: int) -> None:
    world = HttpWorld(engine_timeout=timeout_s, silent_s=31.0)
    for path in ("/health", "/health/ready"):
        response = await world.get(path)
        assert response.status_code == status
        if status == 503:
            told = "no sign of life from the engine for 31 s; after 60 s another is started"
            assert response.json() == {"status": told}


async def test_however_many_ask_for_a_token_one_is_made() -> None:
    world = HttpWorld()
    world.client.delay_s = 0.02
    responses = await asyncio.gather(*(world.get("/health/generate") for _ in range(5)))
    assert [response.status_code for response in responses] == [200] * 5
    assert (await world.get("/health/generate")).json() == {"status": "ok"}
    assert len(world.client.requests) == 1


async def test_any_recent_token_passes_the_check() -> None:
    world = HttpWorld()
    await world.post("/v1/completions", {"prompt": "Hi"})
    assert (await world.get("/health/generate")).status_code == 200
    world.context.load.note_tokens()
    assert (await world.get("/health/generate")).status_code == 200
    assert len(world.client.requests) == 1


async def test_an_engine_that_makes_no_token_in_time_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_TIME_LIMIT_S", 0.05)
    world = HttpWorld()
    world.client.delay_s = 10
    response = await world.get("/health/generate")
    assert (response.status_code, response.json()) == (503, {"status": "the engine made no token within 0.05 s"})
    assert world.client.requests[0].aborts == [None]


async def test_an_engine_that_fails_says_why_and_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    world = HttpWorld()
    world.client.refusal = (None, "out of order")
    assert (await world.get("/health/generate")).json() == {"status": "out of order"}
    world.client.refusal = None
    assert (await world.get("/health/generate")).status_code == 503
    monkeypatch.setattr(health, "_FRESH_S", 0.0)
    assert (await world.get("/health/generate")).status_code == 200
