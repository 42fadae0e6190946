import re
from pathlib import Path

import httpx
import pytest

from chairlift.live.wire.client import EngineClient
from chairlift.server import foreign_routes
from chairlift.server.admin import create_admin_app
from fakes.http_world import HttpWorld
from fakes.loads import make_load


@pytest.fixture
def http(tmp_path: Path) -> httpx.AsyncClient:
    app = create_admin_app(make_load(), tmp_path / "reloads", EngineClient(["ipc://nowhere"], "front-end"))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def test_an_unknown_path_lists_the_routes(http: httpx.AsyncClient) -> None:
    found = await http.get("/metrics")
    assert found.status_code == 404
    routes = "/admin/reload, /admin/replicas, /admin/replicas/{replica:int}/drain"
    assert found.json()["error"]["message"].startswith(f"there is nothing at /metrics; there is {routes}")
    wrong = await http.get("/admin/reload")
    assert (wrong.status_code, wrong.json()["error"]["message"]) == (405, "/admin/reload does not take GET but POST")


async def test_a_replica_that_is_not_there_cannot_be_drained(http: httpx.AsyncClient) -> None:
    assert [each["state"] for each in (await http.get("/admin/replicas")).json()] == ["gone"]
    for replica in (0, 7):
        found = await http.post(f"/admin/replicas/{replica}/drain")
        assert found.status_code == 404
        assert f"there is no replica {replica} now" in found.json()["error"]["message"]


async def test_what_a_404_of_the_server_names_is_there() -> None:
    world = HttpWorld()
    found = await world.get("/admin/reload")
    assert found.json()["error"]["message"] == "there is nothing at /admin/reload; /openapi.json lists the routes"
    assert (await world.get("/openapi.json")).status_code == 200


async def test_a_404_that_has_its_own_reason_keeps_it() -> None:
    found = await HttpWorld().get("/live/requests/x")
    assert found.json()["error"]["message"] == "request x is not among those that are shown, or not any more"


async def test_routes_of_other_servers_say_what_to_use_which_is_there() -> None:
    world = HttpWorld()
    found = await world.post("/api/chat", {})
    assert found.json()["error"]["message"] == "there is nothing at /api/chat; use /v1/chat/completions"
    routes = {route.path for route in world.app.routes}
    named = {place for told in foreign_routes._INSTEAD.values() for place in re.findall(r"/[\w/]+", told)}
    assert named <= routes
    assert not routes & foreign_routes._INSTEAD.keys()
