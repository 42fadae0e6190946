"""Connections against servers that break the rules, on real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from chairlift.lab.bench.answer import StreamedAnswer, read_openai
from chairlift.lab.bench.connection import NO_ANSWER, Connections
from chairlift.lab.bench.record import Ending, Unreachable
from chairlift.lab.bench.target import Address
from fakes.patience import HANG_S

REQUEST = b"POST / HTTP/1.1\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(text: str, finish: str | None = None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text, "finish_reason": finish}]}).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def connections(
    answers: Sequence[bytes], closes: bool = False, greets: bytes = b""
) -> AsyncIterator[Connections]:
    """To a server that gives these answers in turn, in small pieces; an empty one closes the connection."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greets)
        while left and await reader.read(4096):
            for place in range(0, len(left[0]), 7):
                writer.write(left[0][place : place + 7])
                await asyncio.sleep(0)
            if not left.pop(0) or closes:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = Connections(Address("127.0.0.1", port), "127.0.0.1", read_openai)
    try:
        yield made
    finally:
        made.close()
        server.close()


async def ask(made: Connections) -> StreamedAnswer:
    answer = StreamedAnswer()
    async with asyncio.timeout(HANG_S):
        await made.ask(REQUEST, answer)
    return answer


WHOLE = CHUNKED + chunk(event("a")) + chunk(event("b") + event("c", "length")) + b"0\r\n\r\n"


async def test_answers_in_pieces_are_joined() -> None:
    async with connections([WHOLE, WHOLE]) as made:
        for _ in range(2):
            answer = await ask(made)
            assert answer.judge(3) == (Ending.FULL, "")
            assert list(answer.times) == sorted(answer.times)


async def test_a_line_may_be_spread_over_chunks() -> None:
    line = event("a", "length")
    body = CHUNKED + chunk(line[:9]) + chunk(line[9:-2]) + b"0\r\n\r\n"
    async with connections([body]) as made:
        assert (await ask(made)).judge(1) == (Ending.FULL, "")


async def test_a_connection_closed_while_idle_loses_nothing() -> None:
    async with connections([WHOLE, WHOLE, WHOLE], closes=True) as made:
        for _ in range(3):
            assert (await ask(made)).judge(3) == (Ending.FULL, "")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", NO_ANSWER),
        (b"HTTP/1.1 200", NO_ANSWER),
        (CHUNKED + chunk(event("a")), "the connection was closed in the middle of the answer"),
        (CHUNKED + chunk(event("a")) + b"ff\r\ndata: {", "the connection was closed in the middle of the answer"),
        (CHUNKED + chunk(event("a")) + b"0\r\n\r\n", "the answer broke off"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + event("a"), "the answer broke off"),
        (b"HTTP/1.1 500 No\r\n\r\noh\nno", "HTTP 500: oh no"),
        (b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n", "HTTP 429"),
        (b'HTTP/1.1 400 No\r\nContent-Length: 31\r\n\r\n{"error":{"message":"too big"}}', "HTTP 400: too big"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP: "),
    ],
)
async def test_a_failed_answer_names_its_reason(said: bytes, reason: str) -> None:
    async with connections([said], closes=True) as made:
        ending, told = (await ask(made)).judge(1)
    assert ending is Ending.FAILED
    assert told.startswith(reason)


async def test_bytes_after_an_answer_leave_it_valid() -> None:
    async with connections([WHOLE + b"and more", WHOLE]) as made:
        assert (await ask(made)).judge(3) == (Ending.FULL, "")


async def test_a_connection_that_speaks_first_is_closed() -> None:
    async with connections([b""], greets=b"hello\r\n") as made:
        assert (await ask(made)).judge(1)[0] is Ending.FAILED


async def test_a_refused_connection_is_unreachable() -> None:
    async with connections([]) as made:
        pass
    with pytest.raises(Unreachable, match="cannot connect"):
        await ask(made)
