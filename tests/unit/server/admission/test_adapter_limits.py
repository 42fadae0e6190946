"""Limits and shares of adapters, over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from chairlift.live.adapters.registry import AdapterRegistry
from chairlift.server.reload import Reloader, adapters_in_force
from chairlift.server.request_log.log import RequestLog
from chairlift.telemetry.metrics.front_end import FrontEndMetrics
from fakes.http_world import HttpWorld
from fakes.patience import until

KEY = "sk-alice-0123456789"
WORDS = {"prompt": "Hello", "max_tokens": 4}


def make_world(folder: Path, limits: str, **more: Any) -> HttpWorld:
    for name in ("sql", "chat"):
        (folder / "dir" / name).mkdir(parents=True)
        (folder / "dir" / name / "adapter_config.json").touch()
    (folder / "limits.yaml").write_text(limits)
    registry = AdapterRegistry(None, folder / "dir", "small", lambda path: None)
    return HttpWorld(adapters=registry, lora_dir=folder / "dir", lora_limits=folder / "limits.yaml", **more)


async def ask(http: httpx.AsyncClient, model: str, **more: object) -> httpx.Response:
    return await http.post("/v1/completions", json={**WORDS, "model": model, **more}, headers={"X-API-Key": KEY})


async def test_an_adapter_beyond_its_rate_is_refused_by_name_and_others_are_not(tmp_path: Path) -> None:
    world = make_world(tmp_path, "- {name: sql, requests_per_minute: 2}")
    async with world.http() as http:
        codes = [(await ask(http, model)).status_code for model in ("sql", "sql", "chat", "small")]
        refused = await ask(http, "sql")
        codes += [(await ask(http, model)).status_code for model in ("chat", "small")]
    assert codes == [200] * 6
    assert refused.status_code == 429 and 20 <= int(refused.headers["retry-after"]) <= 30
    assert "the limit of adapter sql is reached, 2 requests a minute" in refused.text


async def test_tokens_of_its_answers_count_and_each_adapter_of_a_star_has_its_own(tmp_path: Path) -> None:
    async with make_world(tmp_path, '- {name: "*", tokens_per_minute: 5}').http() as http:
        codes = [(await ask(http, model)).status_code for model in ("sql", "sql", "chat", "chat", "small", "small")]
    assert codes == [200, 429, 200, 429, 200, 200]


async def test_a_key_pays_nothing_for_what_the_adapter_refuses(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"- {{name: alice, key: {KEY}, requests_per_minute: 3}}")
    world = make_world(tmp_path, "- {name: sql, requests_per_minute: 1}", api_key_file=keys)
    async with world.http() as http:
        codes = [(await ask(http, model)).status_code for model in ("sql", "sql", "sql", "chat", "chat", "chat")]
    assert codes == [200, 429, 429, 200, 200, 429]


async def test_an_adapter_pays_nothing_for_what_the_key_refuses(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"- {{name: alice, key: {KEY}, tokens_per_minute: 1}}\n- {{name: bob, key: {KEY[::-1]}}}")
    world = make_world(tmp_path, "- {name: sql, requests_per_minute: 2}", api_key_file=keys)
    body = {**WORDS, "model": "sql"}
    async with world.http() as http:
        assert (await ask(http, "sql")).status_code == 200
        assert (await ask(http, "sql", prompt="Hello Hello Hello")).status_code == 429
        last = [await http.post("/v1/completions", json=body, headers={"X-API-Key": KEY[::-1]}) for _ in range(2)]
    assert [answer.status_code for answer in last] == [200, 429]


async def test_no_more_of_its_requests_are_open_at_once_than_it_has_places(tmp_path: Path) -> None:
    world = make_world(tmp_path, "- {name: sql, max_requests: 3}")
    world.client.stalls_at = 1
    async with world.http() as http:
        open_ones = [asyncio.ensure_future(ask(http, "sql", n=n)) for n in (1, 2)]
        await until(lambda: len(world.client.requests) == 2)
        refused = await ask(http, "sql")
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        assert "the limit of adapter sql is reached, 3 requests at once; try again in 1 s" in refused.text
        other = asyncio.ensure_future(ask(http, "chat"))
        await until(lambda: len(world.client.requests) == 3)
        for each in (*open_ones, other):
            each.cancel()
        await asyncio.gather(*open_ones, other, return_exceptions=True)
        world.client.stalls_at = None
        await until(lambda: not world.context.load.open)
        assert (await ask(http, "sql", n=3)).status_code == 200
        assert (await ask(http, "sql", n=4)).status_code == 200, "one that is alone may be of any size"


@pytest.mark.parametrize(
    ("limits", "owner"),
    [("- {name: sql, weight: 3}", ("adapter sql", 3.0)), ("- {name: sql, max_requests: 3}", ("ann", 1.0))],
)
async def test_an_adapter_with_a_weight_has_a_share_of_its_own(
    tmp_path: Path, limits: str, owner: tuple[str, float]
) -> None:
    world = make_world(tmp_path, limits)
    async with world.http() as http:
        await ask(http, "sql", user="ann")
        await ask(http, "chat", user="ann")
    found = [(request.attributes.user, request.attributes.share) for request in world.client.requests]
    assert found == [owner, ("ann", 1.0)]


async def test_refusals_are_counted_by_adapter(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    metrics = FrontEndMetrics(tmp_path / "metrics", 0)
    limits = "- {name: sql, requests_per_minute: 1}"
    world = make_world(tmp_path, limits, request_log=RequestLog(metrics=metrics))
    async with world.http() as http:
        assert [(await ask(http, "sql")).status_code for _ in range(3)] == [200, 429, 429]
        told = (await http.get("/metrics")).text
    assert 'chairlift_adapter_requests_refused_total{adapter="sql"} 2' in told
    assert 'chairlift_adapter_requests_total{adapter="sql"} 1' in told


def test_limits_are_read_again_and_a_broken_file_changes_none(tmp_path: Path) -> None:
    world = make_world(tmp_path, "- {name: sql, max_requests: 3}")
    settings, file, limits = world.context.settings, tmp_path / "reloads", tmp_path / "limits.yaml"
    reloader = Reloader(file, settings, lambda: settings)

    def most() -> int | None:
        found = adapters_in_force(file).find("sql")
        return None if found is None else found.max_requests

    assert most() == 3
    limits.write_text("- {name: sql, max_requests: 0}")
    assert "max_requests must be a whole number above 0" in reloader().error
    assert most() == 3
    limits.write_text("- {name: sql, max_requests: 5}")
    assert reloader().in_words() == "read the settings again: the limits of adapters have changed"
    assert most() == 5
