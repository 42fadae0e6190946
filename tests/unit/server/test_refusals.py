"""A real front end and a real engine with a socket between them: a refusal does not wait for a step."""

import asyncio
import os
import signal
import socket
import subprocess
import time
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
from fakes.raw_sockets import everything

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


@pytest.mark.parametrize("path", ["/v1/completions", "/nowhere"])
async def test_a_client_that_closes_reads_why_its_long_body_is_refused(path: str) -> None:
    def ask(url: str) -> bytes:
        with socket.create_connection((httpx.URL(url).host, httpx.URL(url).port or 0), HANG_S) as sock:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 6000000\r\n\r\n"
            sock.sendall(head.encode())
            for _ in range(60):
                sock.sendall(b" " * 100_000)
                time.sleep(0.001)
            return everything(sock)

    with HttpWorld().on_a_port() as url:
        answer = await asyncio.to_thread(ask, url)
    assert answer.startswith(b"HTTP/1.1 413" if path == "/v1/completions" else b"HTTP/1.1 404")
