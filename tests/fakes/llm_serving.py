"""A server in llm-serving's original wire format, written from its specification: no engine, only scripted answers.

Each request asks for n tokens and gets n lines and the summary, unless `script` says otherwise for its prompt.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from fakes.patience import HANG_S

PING = b": You can't see this ping\r\n\r\n"
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _token(number: int, text: str) -> dict[str, Any]:
    return {"id": number, "logprob": 17.2, "special": not text, "text": text}


@dataclass
class Original:
    """`script`: what happens to a prompt instead: ping, short, error304, breaks, closes, dies. `has_lists`: data is a
    list of one, as in the first releases; else an object."""

    script: Mapping[str, str] = field(default_factory=dict)
    line_s: float = 0.0
    has_lists: bool = True
    route: str = "/models/llama2/generate_stream"
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)

    @contextmanager
    def on_a_port(self) -> Iterator[int]:
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(RuntimeError):  # it has died already
                self._loop.call_soon_threadsafe(self._die)
            thread.join(HANG_S)

    def _serve(self, listener: socket.socket) -> None:
        async def run() -> None:
            self._over = asyncio.Event()
            server = await asyncio.start_server(self._answer, sock=listener)
            await self._over.wait()
            server.close()

        self._loop.run_until_complete(run())
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _die(self) -> None:
        self._over.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
            body = json.loads(await reader.readexactly(length))
        except asyncio.IncompleteReadError:
            writer.close()
            return
        if head.split(b" ")[1].decode() != self.route:
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        elif "inputs" not in body:
            writer.write(b"HTTP/1.1 422 Unprocessable Entity\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            self.bodies.append(body)
            self.headers.append(head)
            await self._generate(body, writer)
        writer.close()

    async def _generate(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        what = self.script.get(body["inputs"], "")
        if what == "closes":
            return
        if what == "dies":
            self._die()
            return
        num = body["parameters"]["max_new_tokens"]
        texts = [f"w{number} " for number in range(num)]
        reason, whole = "length", "".join(texts)
        if what == "short":
            texts, reason = texts[: num // 2], "eos"
            whole = "".join(texts)
        if what == "error304":
            texts = ["error304: generation task stop abnormally!, please retry!"]
            whole, reason = texts[0], "predict_failed"
        send = self._chunks(writer)
        writer.write(HEAD)
        for number, text in enumerate(texts):
            await asyncio.sleep(self.line_s)
            token = _token(number, text)
            send(self._line({"details": None, "generated_text": text, "tokens": token, "top_tokens": [token]}))
            if what == "ping" and number == 0:
                send(PING)
            if what == "breaks" and number == 1:
                return
        tokens = [_token(number, text) for number, text in enumerate(texts)]
        send(
            self._line(
                {
                    "details": None, "generated_text": whole, "finish_reason": reason, "generated_tokens": len(texts),
                    "prefill": tokens[:1], "seed": 0, "tokens": tokens, "top_tokens": [tokens[:1]],
                }
            )
        )  # fmt: skip
        writer.write(b"0\r\n\r\n")

    def _line(self, data: Mapping[str, Any]) -> bytes:
        event = {"event": "message", "retry": 30000, "data": [data] if self.has_lists else data}
        return json.dumps(event, ensure_ascii=False).encode() + b"\n"

    @staticmethod
    def _chunks(writer: asyncio.StreamWriter) -> Callable[[bytes], None]:
        return lambda data: writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
