"""An HTTP server that answers by a script, on a real socket, and writes down when it wrote what.

A request's script is found by the number of tokens it asks for. Speaks OpenAI's completions and chat and llm-serving.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from fakes.patience import HANG_S


@dataclass(frozen=True)
class Script:
    first_s: float = 0.0  # from the request to the first token
    gap_s: float = 0.0
    num_tokens: int | None = None  # fewer than were asked for
    status: int = 200
    breaks_at: int | None = None  # the token before which the connection is closed
    error_at: int | None = None  # the token instead of which an error is sent
    tells_usage: bool = True
    closes: bool = False  # the answer has no length and ends with the connection


@dataclass
class Served:
    """What really happened to one request."""

    path: str
    body: dict[str, Any]
    came: float
    wrote: list[float] = field(default_factory=list)  # one for each token


class ScriptedServer:
    def __init__(self, scripts: Mapping[int, Script] | None = None, default: Script = Script()) -> None:  # noqa: B008
        self._scripts = scripts or {}
        self._default = default
        self.served: list[Served] = []
        self.port = 0
        self.num_connections = 0
        self.max_lag_s = 0.0  # of its own timers: by so much it may have seen a request late
        self.on_request: Callable[[int], None] = lambda count: None
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def watch_lag(self) -> None:
        while True:
            due = monotonic() + 0.005
            await asyncio.sleep(0.005)
            self.max_lag_s = max(self.max_lag_s, monotonic() - due)

    def die(self) -> None:
        """Closes the door and every connection."""
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener.fileno())
        # What is being accepted is a connection first: asyncio leaves it open where the server has closed.
        loop.call_soon(self._server.close)
        for writer in self._connections:
            writer.transport.abort()

    async def end(self) -> None:
        """Until no connection is left."""
        self.die()
        for _ in range(8):  # turns of the loop, after which what was being accepted is a connection
            await asyncio.sleep(0)
        for writer in self._connections:
            writer.transport.abort()
        for task in self._connections.values():
            task.cancel()
        await asyncio.gather(*self._connections.values(), return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in self._connections), return_exceptions=True)

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """At once, so that no connection is unknown when the server ends."""
        self.num_connections += 1
        self._connections[writer] = asyncio.ensure_future(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                content = await reader.readexactly(int(headers.get("content-length", "0")))
                if not await self._answer(first.split(" ")[:2], content, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # a cancelled one too: the standard library would report it
        finally:
            writer.close()

    async def _answer(self, asked: list[str], content: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may be used again."""
        verb, path = asked
        if verb == "GET":
            return _get(path, writer)
        is_ours = path in ("/v1/completions", "/v1/chat/completions", "/models/llama2/generate_stream")
        if not is_ours:
            _whole(writer, 404, b'{"error":{"message":"no such route"}}')
            return True
        body = json.loads(content)
        served = Served(path, body, monotonic())
        self.served.append(served)
        self.on_request(len(self.served))
        asked_tokens = body["parameters"]["max_new_tokens"] if "parameters" in body else body["max_tokens"]
        script = self._scripts.get(asked_tokens, self._default)
        if script.status != 200:
            _whole(writer, script.status, b'{"error":{"message":"out of order","type":"server_error"}}')
            return True
        return await self._stream(script, served, asked_tokens, writer)

    async def _stream(self, script: Script, served: Served, asked_tokens: int, writer: asyncio.StreamWriter) -> bool:
        lines = _LLM_SERVING if "parameters" in served.body else _CHAT if "messages" in served.body else _COMPLETIONS
        coding = b"Connection: close\r\n" if script.closes else b"Transfer-Encoding: chunked\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + coding + b"\r\n")

        def send(data: bytes) -> None:
            writer.write(data if script.closes else b"%x\r\n%b\r\n" % (len(data), data))

        send(lines.opening)
        num = asked_tokens if script.num_tokens is None else script.num_tokens
        for place in range(num):
            # By the clock, not by the last token: what one was late by is not added to the next.
            due = served.came + script.first_s + place * script.gap_s
            await asyncio.sleep(max(0.0, due - monotonic()))
            if place == script.breaks_at:
                return False
            if place == script.error_at:
                send(lines.error)
                break
            send(lines.token(place, is_last=place == num - 1))
            served.wrote.append(monotonic())
        if script.tells_usage:
            send(lines.usage(num))
        send(lines.closing)
        if not script.closes:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return not script.closes


def _get(path: str, writer: asyncio.StreamWriter) -> bool:
    if path == "/v1/models":
        _whole(writer, 200, b'{"object":"list","data":[{"id":"scripted"}]}')
    elif path == "/serving/get_bs":
        _whole(writer, 200, b'data: {"event": "message", "retry": 30000, "data": 8}\r\n\r\n')
    else:
        _whole(writer, 404, b"nothing here")
    return True


def _whole(writer: asyncio.StreamWriter, status: int, content: bytes) -> None:
    writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%b" % (status, len(content), content))


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class _Completions:
    opening = b": a comment\n\n"
    error = _event({"error": {"message": "the runner failed", "code": 500}})
    closing = b"data: [DONE]\n\n"

    def token(self, place: int, is_last: bool) -> bytes:
        finish = "length" if is_last else None
        return _event({"choices": [{"index": 0, "text": f" {place}", "finish_reason": finish}], "usage": None})

    def usage(self, num: int) -> bytes:
        return _event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": num}})


class _Chat(_Completions):
    opening = _event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})

    def token(self, place: int, is_last: bool) -> bytes:
        said = _event({"choices": [{"index": 0, "delta": {"content": f" {place}"}, "finish_reason": None}]})
        end = _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        return said + end if is_last else said


class _LlmServing(_Completions):
    opening = b": You can't see this ping\r\n\r\n"
    closing = b" \n"

    @property
    def error(self) -> bytes:  # type: ignore[override]
        text = "error304: generation task stop abnormally!, please retry!"
        return self._line({"generated_text": text, "finish_reason": "predict_failed", "generated_tokens": 0})

    def token(self, place: int, is_last: bool) -> bytes:
        return self._line({"details": None, "generated_text": f" {place}", "tokens": {}, "top_tokens": []})

    def usage(self, num: int) -> bytes:
        return self._line({"generated_text": "all", "finish_reason": "length", "generated_tokens": num})

    def _line(self, data: object) -> bytes:
        return json.dumps({"event": "message", "retry": 30000, "data": [data]}).encode() + b"\n"


_COMPLETIONS, _CHAT, _LLM_SERVING = _Completions(), _Chat(), _LlmServing()


@contextmanager
def serving(server: ScriptedServer) -> Iterator[ScriptedServer]:
    """In a thread of its own."""
    loop = asyncio.new_event_loop()

    async def main() -> None:
        await server.start()
        ready.set()
        watching = asyncio.ensure_future(server.watch_lag())
        await over.wait()
        watching.cancel()
        await server.end()

    ready, over = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert ready.wait(HANG_S)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(HANG_S)
        loop.close()
