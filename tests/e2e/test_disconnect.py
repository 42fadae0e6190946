"""A client that goes away frees its request; a server that is told to stop lets requests finish."""

import asyncio
import json
import signal
import socket
from collections.abc import Iterator

import httpx
import pytest

from chairlift.live.processes.child import STOP
from chairlift.server.sockets.run import serve
from fakes.http_world import HttpWorld
from fakes.patience import HANG_S, until, wait_until


@pytest.fixture
def world() -> HttpWorld:
    return HttpWorld("Hello world " * 200)


@pytest.fixture
def url(world: HttpWorld) -> Iterator[str]:
    with world.on_a_port() as url:
        yield url


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Hi", "stream": True, "max_tokens": 100}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 100}),
        ("/models/llama2/generate_stream", {"inputs": "Hi", "parameters": {"max_new_tokens": 100}}),
    ],
)
def test_leaving_a_stream_aborts_the_request(world: HttpWorld, url: str, path: str, body: object) -> None:
    world.client.stalls_at = 3
    with httpx.stream("POST", url + path, json=body, timeout=HANG_S) as response:
        next(response.iter_lines())
    wait_until(lambda: world.client.requests[0].aborts)
    assert world.client.requests[0].aborts == [None]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Hi", "max_tokens": 100}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100}),
        ("/models/llama2/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 100}}),
    ],
)
def test_leaving_before_a_full_answer_aborts_the_request(world: HttpWorld, url: str, path: str, body: object) -> None:
    world.client.stalls_at = 3
    content = json.dumps(body).encode()
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(content))
        )
        sock.sendall(content)
        wait_until(lambda: world.client.requests)
    wait_until(lambda: world.client.requests[0].aborts)
    assert world.client.requests[0].aborts == [None]


def test_one_client_leaving_does_not_disturb_another(world: HttpWorld, url: str) -> None:
    world.client.delay_s = 0.02
    body = {"prompt": "Hi", "stream": True, "max_tokens": 30}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=HANG_S) as staying:
        parts = staying.iter_lines()
        next(parts)
        body["max_tokens"] = 390
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=HANG_S) as leaving:
            next(leaving.iter_lines())
        wait_until(lambda: world.client.requests[1].aborts)
        rest = [line for line in parts if line]
    assert rest[-1] == "data: [DONE]"
    assert [request.aborts for request in world.client.requests] == [[], [None]]


def test_tokens_are_sent_as_they_come(world: HttpWorld, url: str) -> None:
    world.client.stalls_at = 3  # had they been gathered, none would arrive
    body = {"prompt": "Hi", "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=HANG_S) as response:
        lines = (line for line in response.iter_lines() if line)
        assert [next(lines).startswith("data: {") for _ in range(3)] == [True] * 3


def test_connections_are_kept_and_errors_do_not_break_them(url: str) -> None:
    with httpx.Client(base_url=url, timeout=HANG_S) as http:
        for _ in range(3):
            assert http.post("/v1/completions", content=b"{").status_code == 400
            assert http.get("/health").status_code == 200


@pytest.mark.parametrize("by", ["event", "signal"])
async def test_a_stop_lets_requests_under_way_finish(world: HttpWorld, by: str) -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    stop = asyncio.Event()
    server = asyncio.create_task(serve([(world.app, sock)], world.context.load, stop=stop))
    sock.listen()  # connections wait until it is served
    world.client.delay_s = 0.02
    async with httpx.AsyncClient(timeout=HANG_S) as http:
        assert (await http.get(f"{url}/health")).status_code == 200
        answer = asyncio.create_task(http.post(f"{url}/v1/completions", json={"prompt": "Hi"}))
        await until(lambda: world.client.requests)
        if by == "event":
            stop.set()
        else:
            signal.raise_signal(STOP)
        assert (await answer).json()["choices"][0]["finish_reason"] == "length"
    await asyncio.wait_for(server, HANG_S)
    sock.close()
