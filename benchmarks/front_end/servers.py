"""The front ends that `run.py` compares: the shipped one, and minimal versions of alternatives.

    python benchmarks/front_end/servers.py KIND ADDRESS PORT [--fd N --index I] [--key KEY]

With `--key` the shipped one has no engine of its own, and connects to those that a members' list names.

All but `shipped` read a completion request, submit it over the real wire, and write one event per token, with neither
checks nor errors: the difference between two of them is the cost of the design.

    asgi       uvicorn, a task per stream that waits for tokens and awaits `send`
    direct     uvicorn, tokens written to the transport where they arrive
    raw        an asyncio protocol on httptools, no ASGI; tokens written where they arrive
    raw-close  as raw, without chunked encoding: the end of the connection ends the answer
    raw-struct as raw, every chunk encoded as a whole by msgspec
    raw-orjson as raw, every chunk encoded as a whole by orjson
    granian, granian-rsgi   Granian, a task per stream
"""

import argparse
import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httptools
import msgspec
import uvloop

from chairlift.build import find_model
from chairlift.config.settings import Settings
from chairlift.core.params import SamplingParams
from chairlift.text.find import load_tokenizer
from chairlift.text.stream import TextStream

HEAD = (
    b'data: {"id":"cmpl-0123456789abcdef0123456789abcdef","object":"text_completion","created":1700000000,'
    b'"model":"SmolLM2-135M-Instruct","system_fingerprint":null,"choices":[{"index":0,"text":'
)
TAIL = b',"logprobs":null,"finish_reason":null,"stop_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"
TYPE = b"text/event-stream"
_encode = msgspec.json.Encoder().encode


class Choice(msgspec.Struct):
    index: int
    text: str
    logprobs: None = None
    finish_reason: None = None
    stop_reason: None = None


class Chunk(msgspec.Struct):
    choices: list[Choice]
    id: str = "cmpl-0123456789abcdef0123456789abcdef"
    object: str = "text_completion"
    created: int = 1700000000
    model: str = "SmolLM2-135M-Instruct"
    system_fingerprint: None = None


def filled_in(text: str) -> bytes:
    return HEAD + _encode(text) + TAIL


def as_struct(text: str) -> bytes:
    return b"data: %b\n\n" % _encode(Chunk([Choice(0, text)]))


def with_orjson() -> Callable[[str], bytes]:
    import orjson  # type: ignore[import-not-found]

    chunk: dict[str, Any] = {name: getattr(Chunk([]), name) for name in Chunk.__struct_fields__}

    def encode(text: str) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": None, "stop_reason": None}
        dumped: bytes = orjson.dumps({**chunk, "choices": [choice]})
        return b"data: %b\n\n" % dumped

    return encode


class Stream:
    """A listener of one request that turns each token into an event."""

    client: Any
    tokenizer: Any
    chunk: Callable[[str], bytes] = staticmethod(filled_in)

    def __init__(self, body: bytes, write: Callable[[bytes], None], end: Callable[[bytes], None]) -> None:
        request = msgspec.json.decode(body)
        [prompt] = request["prompt"]
        params = SamplingParams(max_tokens=request["max_tokens"], ignore_eos=True)
        self._push = TextStream(self.tokenizer, prompt, params).push
        self._write, self._end = write, end
        self._generation = self.client.submit(prompt, params, self)

    def put(self, output: Any) -> None:
        self._write(self.chunk(self._push(output.token)))
        if output.finish is not None:
            self._end(DONE)

    def fail(self, error: Exception) -> None:
        raise error


class Pending:
    """Events that wait for a task to send them."""

    def __init__(self, body: bytes) -> None:
        self._parts: list[bytes] = []
        self._wake: asyncio.Future[None] | None = None
        self._is_over = False
        Stream(body, self._put, self._finish)

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _finish(self, data: bytes) -> None:
        self._is_over = True
        self._put(data)

    async def get(self) -> bytes:
        """The next events; nothing at the end."""
        if not self._parts and not self._is_over:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        data = b"".join(self._parts)
        self._parts.clear()
        return data


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    pending = Pending(await _body(receive))
    data = await pending.get()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", TYPE)]})
    while data:
        await send({"type": "http.response.body", "body": data, "more_body": True})
        data = await pending.get()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def direct(scope: Any, receive: Any, send: Any) -> None:
    body = await _body(receive)
    over = asyncio.get_running_loop().create_future()
    write = receive.__self__.transport.write
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", TYPE)]})

    def emit(data: bytes) -> None:
        write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(data: bytes) -> None:
        emit(data)
        over.set_result(None)

    Stream(body, emit, end)
    await over
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def rsgi(scope: Any, protocol: Any) -> None:
    pending = Pending(await protocol())
    transport = protocol.response_stream(200, [("content-type", TYPE.decode())])
    while data := await pending.get():
        await transport.send_bytes(data)


class Raw(asyncio.Protocol):
    start = b"HTTP/1.1 200 OK\r\ncontent-type: " + TYPE + b"\r\ntransfer-encoding: chunked\r\n\r\n"

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.transport.write(self.start)
        Stream(self.body, self.write, self.end)

    def write(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))


class RawClose(Raw):
    start = b"HTTP/1.1 200 OK\r\ncontent-type: " + TYPE + b"\r\nconnection: close\r\n\r\n"

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def end(self, data: bytes) -> None:
        self.transport.write(data)
        self.transport.close()


async def _serve(kind: str, address: str, port: int) -> None:
    from chairlift.live.wire.client import EngineClient

    model = find_model(Settings())
    Stream.tokenizer = load_tokenizer(model.source, None)
    Stream.client = EngineClient([address], "front-end")
    connection = asyncio.ensure_future(Stream.client.replicas.run())
    await Stream.client.replicas.until_ready()
    print("ready", flush=True)
    if kind.startswith("raw"):
        chunks = {"raw-struct": as_struct, "raw-orjson": with_orjson() if kind == "raw-orjson" else filled_in}
        Stream.chunk = staticmethod(chunks.get(kind, filled_in))
        protocol = RawClose if kind == "raw-close" else Raw
        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port, backlog=4096)
        await server.serve_forever()
    elif kind.startswith("granian"):
        from granian.constants import Interfaces  # type: ignore[import-not-found]
        from granian.server.embed import Server  # type: ignore[import-not-found]

        app, interface = (asgi, Interfaces.ASGINL) if kind == "granian" else (rsgi, Interfaces.RSGI)
        await Server(app, address="127.0.0.1", port=port, interface=interface, backlog=4096, log_enabled=False).serve()
    else:
        import uvicorn

        app = {"asgi": asgi, "direct": direct}[kind]
        config = uvicorn.Config(
            app, port=port, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, backlog=4096,
        )  # fmt: skip
        await uvicorn.Server(config).serve()
    connection.cancel()


def _shipped(address: str, port: int, fd: int | None, index: int, key: str | None) -> None:
    from chairlift.live.shared_memory.counts import make_counts
    from chairlift.live.shared_memory.rate_limits import make_rate_limits
    from chairlift.server.reload import Reloader
    from chairlift.serving.front_end import front_end_main
    from chairlift.serving.process_setup import RunFolder

    listener = socket.socket(fileno=fd) if fd is not None else socket.create_server(("127.0.0.1", port), backlog=4096)
    folder = RunFolder(Path(address.removeprefix("ipc://")).parent)
    assert folder.address(0) == address
    folder.metrics.mkdir(exist_ok=True)
    if index == 0:
        make_counts(folder.counts, 256)
        make_rate_limits(folder.rates)
        Reloader(folder.reloads, Settings(), Settings)
    ready = lambda _: print("ready", flush=True)  # noqa: E731
    cluster = Settings() if key is None else Settings(replicas=0, cluster=":0", cluster_key=key)
    front_end_main(ready, find_model(cluster), folder, [listener], int(time.time()), index)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--fd", type=int)
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--key")
    arguments = parser.parse_args()
    if arguments.kind == "shipped":
        _shipped(arguments.address, arguments.port, arguments.fd, arguments.index, arguments.key)
    else:
        uvloop.run(_serve(arguments.kind, arguments.address, arguments.port))


if __name__ == "__main__":
    main()
