"""A server on loopback answers to loopback names, and to no page of another site."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from chairlift.live.wire.client import EngineClient
from chairlift.server.admin import create_admin_app
from fakes.http_world import HttpWorld
from fakes.loads import make_load

HERE = "127.0.0.1"
BODY = '{"prompt": "Hi", "max_tokens": 2}'


async def status(world: HttpWorld, host: str, origin: str | None = None, path: str = "/v1/completions") -> int:
    headers = {"Host": host, "Content-Type": "text/plain"} | ({"Origin": origin} if origin else {})
    async with world.http() as http:
        answer = await (
            http.post(path, content=BODY, headers=headers) if "v1" in path else http.get(path, headers=headers)
        )
        if answer.status_code == 403:
            assert "--" in answer.json()["error"]["message"]
            assert not world.client.requests
        return answer.status_code


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.1.2.3", "[::1]:8000", "a.localhost", ""]
)
async def test_this_machines_names_are_taken(host: str) -> None:
    assert await status(HttpWorld(host=HERE), host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "x"],
)
async def test_other_names_are_not(host: str) -> None:
    assert await status(HttpWorld(host=HERE), host) == 403
    assert await status(HttpWorld(host="localhost"), host) == 403


async def test_names_that_the_operator_allows_are_taken() -> None:
    world = HttpWorld(host=HERE, allowed_host="a.example, models.example")
    assert await status(world, "models.example:80") == 200
    assert await status(HttpWorld(host=HERE, allowed_host="a.example"), "models.example") == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "http://localhost:8000.evil.example"]
)
async def test_pages_of_other_sites_may_not_post(origin: str) -> None:
    assert await status(HttpWorld(host=HERE), "localhost:8000", origin) == 403
    assert await status(HttpWorld(host=HERE, cors_origin=origin), "localhost:8000", origin) == 200
    assert await status(HttpWorld(host=HERE, cors_origin="*"), "localhost:8000", origin) == 200


async def test_its_own_page_may() -> None:
    assert await status(HttpWorld(host=HERE), "localhost:8000", "http://localhost:8000") == 200


async def test_where_keys_or_other_machines_are_meant_names_do_not_matter() -> None:
    assert await status(HttpWorld(host="0.0.0.0"), "evil.example", "https://evil.example") == 200
    assert await status(HttpWorld(host=HERE, api_key="a-key-of-some-length"), "evil.example") == 401


async def test_health_is_told_by_any_name() -> None:
    assert await status(HttpWorld(host=HERE), "evil.example", path="/health/live") == 200


def test_the_admin_routes_are_guarded_alike(tmp_path: Path) -> None:
    client = TestClient(
        create_admin_app(make_load(), tmp_path, EngineClient(["ipc://nowhere"], "front-end")),
        base_url="http://evil.example",
    )
    assert client.post("/admin/reload").status_code == 403
