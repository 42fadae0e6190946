"""Small bodies that once took seconds to minutes, or gigabytes: each is answered or refused after little work."""

import time

import pytest

from fakes.http_world import HttpWorld
from stress.dear_bodies import DEAR, WARMING, Body

MAX_S = 2.0  # of processor time, beside an engine that does nothing; before the bounds they took ten and more
LARGE = ("scores of many prompts", "a streamed echo of many prompts")  # answers of 30 MiB take their time


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEAR)
async def test_a_dear_body_takes_little_of_a_front_end(kind: str) -> None:
    world = HttpWorld("Hello", room=16_384, max_running=128, max_body_bytes=2**23)
    path, body = DEAR[kind](0.2 if kind in LARGE else 1.0)
    began = time.process_time()
    response = await world.post(path, body)
    took_s = time.process_time() - began
    assert response.status_code in (200, 400), response.text[:500]
    assert took_s < MAX_S


@pytest.mark.parametrize("body", WARMING[-4:], ids=["shape", "scores", "beams", "choices"])
async def test_bodies_that_warm_a_server_are_answered(body: Body) -> None:
    """What growth is measured beyond."""
    world = HttpWorld("Hello", room=16_384, max_running=128)
    assert (await world.post(*body)).status_code == 200
