"""Watching an engine over the wire, as a front end with an open live page does."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.params import SamplingParams
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.generation import Generation
from chairlift.live.wire.messages import Output, Snapshot
from fakes import ledger_process
from fakes.heard import Heard, connected
from fakes.patience import until
from fakes.submits import MANY

ENDLESS = SamplingParams(max_tokens=90_000)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    address = f"ipc://{tmp_path}/engine"
    process = ledger_process.start(address)
    yield address
    process.kill()
    process.wait()


class Nobody:
    def put(self, output: Output) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Seen:
    """A viewer that keeps what it is shown."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.num_lost = 0

    def put(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def lose(self) -> None:
        self.num_lost += 1

    @property
    def kinds(self) -> str:
        return "".join("w" if snapshot.is_whole else "n" for snapshot in self.snapshots)

    def content(self, place: int) -> Any:
        return json.loads(self.snapshots[place].data)


async def test_who_looks_gets_the_whole_and_then_news_until_it_looks_away(address: str) -> None:
    seen = Seen()
    async with connected(address) as client:
        client.watching.begin(seen)
        await until(lambda: len(seen.snapshots) >= 3)
        client.watching.end()
        await Heard(client, [1], SamplingParams(max_tokens=1)).all()  # what was on its way has come by then
        count = len(seen.snapshots)
        await asyncio.sleep(1.3)
        assert len(seen.snapshots) == count
    assert seen.kinds[:3] == "wnn"
    assert {"columns", "ticks", "bars", "blocks", "start"} <= seen.content(0).keys()
    assert seen.content(1)["ticks"]  # an idle engine's clock goes on while it is watched


async def test_front_ends_look_on_their_own_at_the_same_engine(address: str) -> None:
    one, two = Seen(), Seen()
    async with connected(address, "one") as first, connected(address, "two") as second:
        generation = first.submit([1, 2, 3], ENDLESS, MANY, Nobody())
        first.watching.begin(one)
        await until(lambda: len(one.snapshots) >= 2)
        second.watching.begin(two)
        await until(lambda: len(two.snapshots) >= 2)
        first.watching.end()
        count = len(two.snapshots)
        await until(lambda: len(two.snapshots) > count)
        generation.abort()
    place = one.content(0)["columns"].index("running")
    assert two.content(1)["ticks"][-1][place] == 1


async def shown(client: EngineClient) -> tuple[Generation, int]:
    """A request that goes on, and its number on the page."""
    seen = Seen()
    generation = client.submit([1, 2, 3], ENDLESS, MANY, Nobody())
    client.watching.begin(seen)
    await until(lambda: bool(seen.snapshots))
    ((number, *_),) = seen.content(0)["bars"]
    return generation, number


async def test_a_running_request_is_explained(address: str) -> None:
    async with connected(address) as client:
        generation, number = await shown(client)
        told = json.loads(await client.watching.explain(number) or b"{}")
        assert told["headline"][0].startswith(f"request {number}: 3 prompt tokens")
        assert await client.watching.explain(number + 1) is None
        generation.abort()


async def test_a_request_whose_client_is_gone_is_explained_to_its_end(address: str) -> None:
    async with connected(address) as client:
        generation, number = await shown(client)
        generation.abort()
        told = json.loads(await client.watching.explain(number) or b"{}")
        assert told["headline"][0].endswith("(abort)")


async def test_a_viewer_is_shown_the_next_engine_too(tmp_path: Path) -> None:
    address, seen = f"ipc://{tmp_path}/engine", Seen()
    process = ledger_process.start(address)
    try:
        async with connected(address) as client:
            client.watching.begin(seen)
            await until(lambda: bool(seen.snapshots))
            process.kill()
            process.wait()
            await until(lambda: seen.num_lost == 1)
            assert await client.watching.explain(1) is None
            process = ledger_process.start(address)
            count = len(seen.snapshots)
            await until(lambda: len(seen.snapshots) > count)
            assert seen.snapshots[count].is_whole
    finally:
        process.kill()
        process.wait()
