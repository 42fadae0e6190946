"""A slow network in user space, for kernels without netem: forwards connections late, unevenly and at a limited rate.

    sudo python tests/stress/slow_network.py NAMESPACE:HOST:PORT=NAMESPACE:HOST:PORT ...

Each argument is a hop: where it listens, and where it connects to; namespaces are those of `ip netns`, none is the one
it is started in. Every hop has a line of its own in each direction, shared by its connections as a cable is. Reads the
weather as lines of JSON (`Weather`) from its standard input, for the hop with that number or for all, and ends with it.

Always: bytes keep their order within a connection, and none is lost: TCP's own loss shows as delay.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import random
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

_PIECE = 4096  # bytes that are read at once
_MAX_ON_THE_WAY = 64  # pieces of a connection; more stay with the sender
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Weather:
    delay_s: float = 0.0  # one way
    jitter_s: float = 0.0  # up to so much more
    bytes_per_s: float = 0.0  # 0: no limit
    stall_s: float = 0.0  # nothing passes for so long from now on
    hop: int | None = None  # all of them


class End(NamedTuple):
    namespace: str
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "End":
        namespace, host, port = text.split(":")
        return cls(namespace, host, int(port))

    def __str__(self) -> str:
        return f"{self.namespace}:{self.host}:{self.port}"

    def socket(self) -> socket.socket:
        """A socket of this end's namespace, wherever it is used afterwards."""
        with entered(self.namespace):
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
    if not namespace:
        yield
        return
    with Path("/proc/self/ns/net").open() as own, Path("/run/netns", namespace).open() as other:
        _enter(other.fileno())
        try:
            yield
        finally:
            _enter(own.fileno())


def _enter(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Line:
    """One direction of a hop: says when what is sent now arrives."""

    def __init__(self, rng: random.Random) -> None:
        self.weather = Weather()
        self.opens = 0.0  # the end of a stall
        self._rng = rng
        self._free = 0.0  # when the last byte sent so far has left

    def arrival(self, num_bytes: int, now: float) -> float:
        weather = self.weather
        self._free = max(self._free, now)
        if weather.bytes_per_s:
            self._free += num_bytes / weather.bytes_per_s
        return self._free + weather.delay_s + self._rng.uniform(0.0, weather.jitter_s)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """All bytes of one connection, and its end."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MAX_ON_THE_WAY)
        delivery = asyncio.create_task(self._deliver(on_the_way, writer))
        loop, last, data = asyncio.get_running_loop(), 0.0, b"?"
        while data and not delivery.done():
            try:
                data = await reader.read(_PIECE)
            except OSError:
                data = b""
            last = max(last, self.arrival(len(data), loop.time()))
            await on_the_way.put((last, data))
        await delivery

    async def _deliver(self, on_the_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        loop, data = asyncio.get_running_loop(), b"?"
        with contextlib.suppress(OSError):
            while data:
                due, data = await on_the_way.get()
                while (wait := max(due, self.opens) - loop.time()) > 0:
                    await asyncio.sleep(wait)
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        while not on_the_way.empty():  # whoever waits to put more sees that this is over
            on_the_way.get_nowait()


class Hop:
    def __init__(self, near: End, far: End, rng: random.Random) -> None:
        self._near, self._far = near, far
        self.lines = (Line(rng), Line(rng))

    async def open(self) -> None:
        listener = self._near.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._near.host, self._near.port))
        self._server = await asyncio.start_server(self._connected, sock=listener)

    def close(self) -> None:
        """Takes no more connections."""
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = self._far.socket()
        far.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(far, (self._far.host, self._far.port))
            far_reader, far_writer = await asyncio.open_connection(sock=far)
        except OSError:
            far.close()
            writer.close()
            return
        await asyncio.gather(self.lines[0].carry(reader, far_writer), self.lines[1].carry(far_reader, writer))
        for each in (writer, far_writer):
            each.close()
            with contextlib.suppress(OSError):
                await each.wait_closed()

    def change(self, weather: Weather, now: float) -> None:
        for line in self.lines:
            line.weather = weather
            line.opens = max(line.opens, now + weather.stall_s)


async def forward(hops: list[Hop]) -> None:
    loop, orders = asyncio.get_running_loop(), asyncio.StreamReader()
    for hop in hops:
        await hop.open()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print("open", flush=True)
    while order := await orders.readline():
        weather = Weather(**json.loads(order))
        for hop in hops if weather.hop is None else [hops[weather.hop]]:
            hop.change(weather, loop.time())


class SlowNetwork:
    """The process, for a test."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, hops: list[tuple[End, End]]) -> "SlowNetwork":
        arguments = [f"{near}={far}" for near, far in hops]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, __file__, *arguments, stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"open\n", "the slow network could not be opened"
        return cls(process)

    def change(self, weather: Weather) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(weather)).encode() + b"\n")

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


def main() -> None:
    rng = random.Random(0)
    pairs = [argument.split("=") for argument in sys.argv[1:]]
    hops = [Hop(End.of(near), End.of(far), rng) for near, far in pairs]
    asyncio.run(forward(hops))


if __name__ == "__main__":
    main()
