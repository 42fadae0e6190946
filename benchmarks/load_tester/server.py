"""The server of `run.py`: streams synthetic chunks to every client at an even pace, and does nothing else.

    python benchmarks/load_tester/server.py PORT STEP_MS

Several may share a port. Each prints a line when it listens. Speaks just enough of /v1/completions: `max_tokens` says
how many chunks an answer has. All streams get a chunk in every step, a few streams at a time.
"""

import asyncio
import re
import socket
import sys
from time import monotonic

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"cmpl-0123456789abcdef0123456789abcdef","object":"text_completion","created":1700000000,'
    b'"model":"trivial","system_fingerprint":null,"choices":[{"index":0,"text":" word","logprobs":null,'
    b'"finish_reason":%b,"stop_reason":null}],"usage":null}\n\n'
)
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
MODELS = b'{"object":"list","data":[{"id":"trivial"}]}'
PARTS = 20  # of a step


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


NEXT, LAST = chunk(EVENT % b"null"), chunk(EVENT % b'"length"')


class Stream(asyncio.Protocol):
    open: list["Stream"] = []  # noqa: RUF012

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"Content-Length: (\d+)", head)
        if len(body) < (int(length[1]) if length else 0):
            return
        self.received = b""
        if head.startswith(b"GET"):
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(MODELS), MODELS))
            return
        asked = re.search(rb'"max_tokens":(\d+)', body)
        assert asked is not None
        self.left = self.total = int(asked[1])
        self.transport.write(HEAD)
        self.open.append(self)

    def step(self) -> bool:
        """Whether more chunks follow."""
        self.left -= 1
        if self.left > 0:
            self.transport.write(NEXT)
        else:
            self.transport.write(LAST + chunk(USAGE % self.total) + b"0\r\n\r\n")
        return self.left > 0


async def serve(port: int, step_s: float) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(Stream, "127.0.0.1", port, backlog=4096, reuse_port=True)
    print("listening", flush=True)
    due = monotonic()
    while True:
        for part in range(PARTS):
            due = max(due + step_s / PARTS, monotonic() - step_s)
            await asyncio.sleep(due - monotonic())
            gone = {stream for stream in Stream.open[part::PARTS] if not stream.step()}
            if gone:
                Stream.open[:] = [stream for stream in Stream.open if stream not in gone]


if __name__ == "__main__":
    assert hasattr(socket, "SO_REUSEPORT")
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2]) / 1e3))
