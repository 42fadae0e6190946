"""Fair shares and limits of keys over two replicas and two front ends, as a whole server keeps them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.corner import SMALL
from fakes.patience import HANG_S, until
from fakes.served import Served, serve

pytestmark = pytest.mark.nightly

FLOOD, LIMITED = "flood", "limited"
KEYS = {name: f"sk-a-long-key-of-{name}" for name in (SMALL, FLOOD, LIMITED)}
WEIGHT = 4  # of the flood
MAX_RUNNING = 2
NUM_SMALL = 12
KEY_FILE = f"""
- {{name: {SMALL}, key: {KEYS[SMALL]}}}
- {{name: {FLOOD}, key: {KEYS[FLOOD]}, weight: {WEIGHT}}}
- {{name: {LIMITED}, key: {KEYS[LIMITED]}, requests_per_minute: 3}}
"""


@pytest.fixture(scope="module")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "keys.yaml").write_text(KEY_FILE)
    options = ("--replicas", 2, "--frontends", 2, "--policy", "fair-share", "--router", "fakes.corner:OneCorner")
    sizes = ("--kv-memory", "64MiB", "--max-running", MAX_RUNNING, "--max-waiting", 1000)
    tests = {"PYTHONPATH": str(Path(__file__).parents[1])}
    arguments = ("--model", tiny_model, *options, *sizes, "--api-key-file", folder / "keys.yaml")
    with serve(folder / "log", *arguments, environment=tests) as server:
        yield server


def asked(name: str, num_tokens: int = 1) -> dict[str, Any]:
    body = {"prompt": "the lift", "max_tokens": num_tokens, "ignore_eos": True}
    return {"json": body, "headers": {"Authorization": f"Bearer {KEYS[name]}"}}


def ask(server: Served, name: str) -> int:
    """By a connection of its own, which either front end may take."""
    return httpx.post(f"{server.url}/v1/completions", timeout=HANG_S, **asked(name)).status_code


async def test_a_tenant_that_one_replica_serves_gets_its_share_of_both(served: Served) -> None:
    """The flood has weight 4, so the other one is due a fifth of both replicas; a fifth of its own would be a tenth."""
    done = list[str]()

    async def run(client: httpx.AsyncClient, name: str) -> None:
        assert (await client.post("/v1/completions", **asked(name, 40))).status_code == 200
        done.append(name)

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=served.url, timeout=HANG_S, limits=limits) as client:
        flood = [asyncio.ensure_future(run(client, FLOOD)) for _ in range(12 * NUM_SMALL)]
        await until(lambda: len(done) > 5)
        await asyncio.gather(*(run(client, SMALL) for _ in range(NUM_SMALL)))
        shared = done[done.index(SMALL) :]
        await asyncio.gather(*flood)
    # What runs in each replica, and what is served between two tellings.
    slack = 2 * 2 * MAX_RUNNING + 8
    assert shared.count(SMALL) == NUM_SMALL
    assert shared.count(FLOOD) <= WEIGHT * (NUM_SMALL - 1) + slack
    assert len(done) == 13 * NUM_SMALL


def test_the_limit_of_a_key_holds_over_all_front_ends_and_replicas(served: Served) -> None:
    assert [ask(served, LIMITED) for _ in range(8)] == [200] * 3 + [429] * 5
