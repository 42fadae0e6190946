"""Streamed responses on the server's own handling of a connection, with a transport that only writes down."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from chairlift.server import stream
from chairlift.server.admission import cost
from chairlift.server.openai import logprobs
from chairlift.server.openai.logprobs import CompletionScores
from chairlift.server.sockets.connection import ConnectionProtocol
from fakes.http_world import HttpWorld
from fakes.patience import turns, until
from fakes.sse import events

LONG = "Hello world " * 12


class Transport(asyncio.Transport):
    """The client reads only when told to, and the buffer holds `room` writes."""

    def __init__(self, room: int = 10**9) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.protocol: ConnectionProtocol
        self.room = room

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.room -= 1
        if self.room == 0:
            self.protocol.pause_writing()

    def read(self, room: int) -> None:
        self.room = room
        self.protocol.resume_writing()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


def connect(world: HttpWorld, room: int = 10**9) -> Transport:
    config = uvicorn.Config(world.app, lifespan="off", log_config=None, proxy_headers=False)
    transport = Transport(room)
    transport.protocol = ConnectionProtocol(world.context.load, config=config, server_state=ServerState(), app_state={})
    transport.protocol.connection_made(transport)
    return transport


def ask(transport: Transport, path: str, body: bytes) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body))
    transport.protocol.data_received(head + body)


def body_of(written: list[bytes]) -> str:
    """The chunked body of the one response that was written."""
    _, _, rest = b"".join(written).partition(b"\r\n\r\n")
    body = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            assert rest == b"\r\n"
            return body.decode()
        body, rest = body + rest[:length], rest[length:]
        assert rest.startswith(b"\r\n")
        rest = rest[2:]


async def full(transport: Transport) -> int:
    """Waits until the buffer is full; how many writes there are when nothing more can be expected."""
    await until(lambda: transport.room == 0)
    await turns()
    return len(transport.written)


async def complete(transport: Transport) -> str:
    await until(lambda: bool(transport.written) and transport.written[-1].endswith(b"0\r\n\r\n"))
    return body_of(transport.written)


BODY = b'{"prompt": "Hi", "max_tokens": 30, "stream": true}'
SEVERAL = b'{"prompt": ["Hi", "Ho"], "n": 2, "max_tokens": 30, "stream": true}'


def texts(body: str, num_choices: int = 1) -> list[str]:
    *parts, done = events(body)
    assert done == "[DONE]"
    made = [""] * num_choices
    for part in parts:
        made[part["choices"][0]["index"]] += part["choices"][0]["text"]
    return made


async def test_every_token_is_a_chunk_of_its_own() -> None:
    transport = connect(HttpWorld(LONG))
    ask(transport, "/v1/completions", BODY)
    assert len(events(await complete(transport))) == 31
    # The head, a chunk for each token, and the end of the body; the last token's carries the end of the stream too.
    assert len(transport.written) == 1 + 30 + 1


async def test_samples_of_a_step_go_out_in_one_piece() -> None:
    transport = connect(HttpWorld(LONG))
    ask(transport, "/v1/completions", SEVERAL)
    assert len(events(await complete(transport))) == 4 * 30 + 1
    assert len(transport.written) <= 1 + 2 * 30 + 2  # the two prompts are two requests, and may step apart


async def test_a_step_with_much_text_is_written_before_all_of_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_LARGE", 100)
    transport = connect(HttpWorld(LONG))
    ask(transport, "/v1/completions", SEVERAL)
    assert len(events(await complete(transport))) == 4 * 30 + 1
    assert len(transport.written) >= 4 * 30


async def test_no_more_scores_of_an_echoed_prompt_are_made_than_the_client_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, top = [], CompletionScores._top
    monkeypatch.setattr(CompletionScores, "_top", lambda *given: made.append(given) or top(*given))
    monkeypatch.setattr(logprobs, "_AT_ONCE", 8)
    monkeypatch.setattr(stream, "_LARGE", 10)
    transport = connect(HttpWorld(LONG), room=70)
    body = b'{"prompt": [%b5], "n": 2, "echo": true, "logprobs": 1, "max_tokens": 2, "stream": true}' % (b"5, " * 99)
    ask(transport, "/v1/completions", body)
    await full(transport)
    assert 0 < len(made) < 99
    transport.read(room=10**9)
    *chunks, _ = events(await complete(transport))
    assert len(made) == 99 + 4  # once for both choices, and their own tokens
    for index in (0, 1):
        first, second = (each["choices"][0]["logprobs"] for each in chunks if each["choices"][0]["index"] == index)
        assert [len(each) for each in first.values()] == [101] * 4
        assert second["text_offset"] == [first["text_offset"][-1] + len("Hello")]


async def test_answers_to_prompts_submitted_after_the_first_output_are_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost, "PIECE_S", 0.0)
    transport = connect(HttpWorld(LONG))
    more = b'"echo": true, "logprobs": 1, "max_tokens": 2, "stream": true'
    ask(transport, "/v1/completions", b'{"prompt": [%b[5]], %b}' % (b"[5], " * 19, more))
    assert set(texts(await complete(transport), 20)) == {"$Hello world"}


async def test_the_rest_of_a_body_is_not_submitted_once_its_client_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "PIECE_S", 0.0)
    world = HttpWorld(LONG)
    transport = connect(world)
    ask(transport, "/v1/completions", b'{"prompt": [%b[5]], "stream": true}' % (b"[5], " * 99))
    while not world.client.requests:
        await asyncio.sleep(0)
    transport.protocol.connection_lost(None)
    await turns(500)
    assert 0 < len(world.client.requests) < 10
    assert all(request.aborts == [None] for request in world.client.requests)


@pytest.mark.parametrize("tokens", [1, 2])
async def test_samples_that_end_at_once_are_complete(tokens: int) -> None:
    world = HttpWorld("Hello world")
    transport = connect(world)
    ask(transport, "/v1/completions", SEVERAL.replace(b"30", b"%d" % tokens))
    assert texts(await complete(transport), 4) == [["Hello", "Hello world"][tokens - 1]] * 4


@pytest.mark.parametrize("body", [BODY, SEVERAL])
async def test_a_slow_client_is_written_what_the_buffer_holds_and_the_rest_in_order(body: bytes) -> None:
    world = HttpWorld(LONG)
    transport = connect(world, room=4)
    ask(transport, "/v1/completions", body)
    assert await full(transport) == 4
    for count in (4 + 3, 4 + 3 + 5):
        transport.read(room=count - len(transport.written))
        assert await full(transport) == count
    transport.read(room=10**9)
    num_choices = 1 if body is BODY else 4
    answer = world.tokenizer.decode(world.answer[:30])
    assert texts(await complete(transport), num_choices) == [answer] * num_choices
    assert all(request.aborts == [] for request in world.client.requests)


async def test_a_client_that_leaves_while_it_is_slow_frees_its_request() -> None:
    world = HttpWorld(LONG)
    transport = connect(world, room=3)
    ask(transport, "/v1/completions", BODY)
    await full(transport)
    transport.protocol.connection_lost(None)
    await until(lambda: world.client.requests[0].aborts == [None])
    assert len(transport.written) == 3


async def test_a_client_that_is_gone_before_its_request_was_read_costs_the_engine_nothing() -> None:
    world = HttpWorld(LONG)
    transport = connect(world)
    ask(transport, "/v1/completions", BODY)
    transport.protocol.connection_lost(None)
    await turns()
    assert world.client.requests == []


async def test_a_connection_takes_one_stream_after_another() -> None:
    world = HttpWorld("Hello there.")
    transport = connect(world)
    for path, body in (("/v1/completions", BODY), ("/models/a/generate_stream", b'{"inputs": "Hi"}')):
        transport.written.clear()
        ask(transport, path, body)
        assert "Hello" in await complete(transport)


async def test_pipelined_streams_are_answered_in_order() -> None:
    world = HttpWorld("Hello there.")
    transport = connect(world)
    ask(transport, "/v1/completions", BODY)
    ask(transport, "/models/a/generate_stream", b'{"inputs": "Hi"}')
    await until(lambda: b"".join(transport.written).count(b"\r\n0\r\n\r\n") == 2)
    first, second = b"".join(transport.written).split(b"HTTP/1.1 200 OK")[1:]
    assert b"[DONE]" in first and b"generated_text" in second


async def test_a_response_leaves_nothing_for_the_collector_of_cycles() -> None:
    world = HttpWorld("Hello there.")
    transport = connect(world)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        ask(transport, "/v1/completions", BODY)
        await complete(transport)
        await turns()
        gc.collect()
        left: list[Any] = [each for each in gc.garbage if type(each).__module__.startswith("chairlift")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert left == []


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.parametrize("has_all", [True, False])
@pytest.mark.parametrize("has_another", [False, True])
async def test_a_connection_is_gone_when_it_is_lost(is_broken: bool, has_all: bool, has_another: bool) -> None:
    world = HttpWorld(LONG)
    transport = connect(world)
    connection = weakref.ref(transport.protocol)
    gc.collect()
    gc.disable()
    try:
        ask(transport, "/v1/completions", BODY)
        await (complete(transport) if has_all else until(lambda: len(transport.written) > 2))
        if has_another:
            ask(transport, "/v1/completions", BODY)
        transport.protocol.connection_lost(ConnectionResetError() if is_broken else None)
        del transport.protocol  # as a transport that is closed does
        await until(lambda: connection() is None)
    finally:
        gc.enable()
