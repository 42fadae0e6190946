"""A client that goes away frees its request; a server that is told to stop lets requests finish."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from chairlift.server.run import serve
from fakes.http_world import HttpWorld

STEP_S = 0.02


@pytest.fixture
def world() -> HttpWorld:
    world = HttpWorld("Hello world " * 12)
    world.client.delay_s = STEP_S
    return world


@pytest.fixture
def url(world: HttpWorld) -> Iterator[str]:
    with world.on_a_port() as url:
        yield url


def wait_for_abort(world: HttpWorld) -> float:
    started = time.monotonic()
    while not (world.client.requests and world.client.requests[0].aborts):
        assert time.monotonic() - started < 5, "the request was never aborted"
        time.sleep(0.001)
    return time.monotonic() - started


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Hi", "stream": True, "max_tokens": 100}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True}),
        ("/models/llama2/generate_stream", {"inputs": "Hi", "parameters": {"max_new_tokens": 100}}),
    ],
)
def test_leaving_a_stream_aborts_the_request(world: HttpWorld, url: str, path: str, body: object) -> None:
    with httpx.stream("POST", url + path, json=body) as response:
        next(response.iter_lines())
    assert wait_for_abort(world) < 1
    assert world.client.requests[0].aborts == [None]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Hi", "max_tokens": 100}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/models/llama2/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 100}}),
    ],
)
def test_leaving_before_a_full_answer_aborts_the_request(world: HttpWorld, url: str, path: str, body: object) -> None:
    content = json.dumps(body).encode()
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(content)))
        sock.sendall(content)
        while not world.client.requests:
            time.sleep(0.001)
    assert wait_for_abort(world) < 1
    assert world.client.requests[0].aborts == [None]


def test_one_client_leaving_does_not_disturb_another(world: HttpWorld, url: str) -> None:
    body = {"prompt": "Hi", "stream": True, "max_tokens": 30}
    with httpx.stream("POST", f"{url}/v1/completions", json=body) as staying:
        parts = staying.iter_lines()
        next(parts)
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as leaving:
            next(leaving.iter_lines())
        rest = [line for line in parts if line]
    assert rest[-1] == "data: [DONE]"
    assert [request.aborts for request in world.client.requests] == [[], [None]]


def test_tokens_are_sent_as_they_come(world: HttpWorld, url: str) -> None:
    started = time.monotonic()
    with httpx.stream("POST", f"{url}/v1/completions", json={"prompt": "Hi", "stream": True}) as response:
        arrivals = [time.monotonic() - started for line in response.iter_lines() if line]
    # 16 tokens, one step apart: had they been gathered, first and last would arrive together.
    assert arrivals[-1] - arrivals[0] > 10 * STEP_S


def test_connections_are_kept_and_errors_do_not_break_them(url: str) -> None:
    with httpx.Client(base_url=url) as http:
        for _ in range(3):
            assert http.post("/v1/completions", content=b"{").status_code == 400
            assert http.get("/health").status_code == 200


@pytest.mark.parametrize("by", ["event", "SIGTERM"])
async def test_a_stop_lets_requests_under_way_finish(world: HttpWorld, by: str) -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    stop = asyncio.Event()
    server = asyncio.create_task(serve([(world.app, sock)], world.context.load, stop=stop))
    async with httpx.AsyncClient() as http:
        for _ in range(100):
            try:
                assert (await http.get(f"{url}/health")).status_code == 200
                break
            except httpx.ConnectError:
                await asyncio.sleep(0.01)
        answer = asyncio.create_task(http.post(f"{url}/v1/completions", json={"prompt": "Hi"}))
        while not world.client.requests:
            await asyncio.sleep(0.001)
        if by == "event":
            stop.set()
        else:
            signal.raise_signal(signal.Signals[by])
        assert (await answer).json()["choices"][0]["finish_reason"] == "length"
    await asyncio.wait_for(server, 5)
    sock.close()
