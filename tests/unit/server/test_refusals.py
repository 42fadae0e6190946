"""A real front end and a real engine with a socket between them: a refusal does not wait for a step."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from chairlift.server.app import create_app
from fakes import ledger_process
from fakes.connection import with_connection
from fakes.heard import connected
from fakes.http_world import HttpWorld
from fakes.patience import HANG_S, until

STUCK = {"prompt": [ledger_process.STUCK, 5, 6], "max_tokens": 1, "return_token_ids": True}
REFUSED = (
    ("/v1/completions", {"prompt": "Hi"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True}),
    ("/models/small/generate", {"inputs": "Hi"}),
)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine"


@pytest.fixture
def engine(address: str) -> Iterator[subprocess.Popen[bytes]]:
    process = ledger_process.start(address)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("bound", [{"max_waiting": 1}, {"max_waiting_tokens": 3}])
async def test_a_429_comes_while_the_engine_is_in_the_middle_of_a_step(
    address: str, engine: subprocess.Popen[bytes], bound: dict[str, Any]
) -> None:
    async with connected(address) as client:
        world = HttpWorld(**bound)
        app = create_app(replace(world.context, client=client))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(with_connection(app)), base_url="http://test"
        ) as http:
            stuck = asyncio.ensure_future(http.post("/v1/completions", json=STUCK))
            await until(ledger_process.stuck_at(address).exists)
            for path, body in REFUSED:
                answer = await asyncio.wait_for(http.post(path, json=body), timeout=HANG_S)
                assert (answer.status_code, int(answer.headers["retry-after"]) >= 1) == (429, True)
            assert not stuck.done()
            os.kill(engine.pid, signal.SIGUSR1)
            answer = await asyncio.wait_for(stuck, timeout=HANG_S)
            assert answer.status_code == 200
            assert (await http.post("/v1/completions", json={"prompt": [1], "max_tokens": 1})).status_code == 200
