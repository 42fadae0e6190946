"""The cost of reading streams with other libraries: a client process that timestamps and decodes every line.

    python benchmarks/load_tester/clients.py KIND PORT STREAMS TOKENS

KIND is `aiohttp`, `httpx`, or `streams` (asyncio's own, with the least HTTP that works). Prints processor time in us
per chunk, requests included; all run on uvloop. `run.py --others` runs those that are installed.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from chairlift.lab.bench.answer import StreamedAnswer, read_openai

Ask = Callable[[StreamedAnswer], Awaitable[None]]


def take(answer: StreamedAnswer, line: bytes) -> None:
    if line.strip():
        read_openai(answer, line, time.monotonic())


async def with_aiohttp(url: str, body: bytes, num: int) -> list[StreamedAnswer]:
    import aiohttp  # type: ignore[import-not-found]

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask(answer: StreamedAnswer) -> None:
            async with session.post(url, data=body) as response:
                async for line in response.content:
                    take(answer, line)

        return await together(ask, num)


async def with_httpx(url: str, body: bytes, num: int) -> list[StreamedAnswer]:
    import httpx

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def ask(answer: StreamedAnswer) -> None:
            async with client.stream("POST", url, content=body) as response:
                async for line in response.aiter_lines():
                    take(answer, line.encode())

        return await together(ask, num)


async def with_streams(url: str, body: bytes, num: int) -> list[StreamedAnswer]:
    port = int(url.rpartition(":")[2].partition("/")[0])
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def ask(answer: StreamedAnswer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        while not answer.has_ended or answer.output_tokens is None:
            size = int(await reader.readline(), 16)
            for line in (await reader.readexactly(size)).splitlines():
                take(answer, line)
            await reader.readexactly(2)
        writer.close()

    return await together(ask, num)


async def together(ask: Ask, num: int) -> list[StreamedAnswer]:
    answers = [StreamedAnswer() for _ in range(num)]
    await asyncio.gather(*(ask(answer) for answer in answers))
    return answers


KINDS = {"aiohttp": with_aiohttp, "httpx": with_httpx, "streams": with_streams}


def main(kind: str, port: str, streams: str, tokens: str) -> None:
    url = f"http://127.0.0.1:{port}/v1/completions"
    body = json.dumps({"prompt": [1], "max_tokens": int(tokens), "stream": True}, separators=(",", ":")).encode()
    began = time.process_time()
    answers = uvloop.run(KINDS[kind](url, body, int(streams)))
    spent = time.process_time() - began
    num = sum(len(answer.times) for answer in answers)
    assert num == int(streams) * int(tokens), f"{num} chunks came"
    print(f"{1e6 * spent / num:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
