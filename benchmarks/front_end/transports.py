"""One engine over TCP and CURVE on loopback beside a local socket: tokens a second, and the time to a first token.

    python benchmarks/front_end/transports.py [--turns 7] [--requests 512] [--tokens 66] [--singles 300]

The engine has no model (`engine.py`), as fast as it goes; the front end is the shipped one and the clients only count
(`client.py`). Both pairs run at once and are asked in turns, so that both see the same machine. A first token is timed
from the request's first byte to the answer's, one request at a time, the two pairs alternating. Processor time is that
of engine and front end together, which other work on the machine disturbs less.
"""

import argparse
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import psutil
import zmq
from client import request
from run import _HERE, _start

from chairlift.live.nodes.messages import MemberEngine, Members
from chairlift.server.sockets.listen import listen
from chairlift.serving.process_setup import RunFolder

FASTEST = ("--running", "256", "--step-ms", "0")


@dataclass(frozen=True)
class Pair:
    port: str  # of HTTP
    processes: list[psutil.Process]

    def processor_s(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)


@dataclass(frozen=True)
class Turn:
    rate: float  # tokens per second at the clients
    token_us: float  # of processor time


class Started(Protocol):
    @property
    def pid(self) -> int: ...


def pair(stack: ExitStack, is_tcp: bool, load: Sequence[str] = FASTEST, start: Callable[..., Started] = _start) -> Pair:
    """An engine and a front end. `load`: how fast the engine goes; `start`: starts it."""
    env, key = dict(os.environ), secrets.token_hex(32)
    folder = RunFolder(Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))))
    address = folder.address(0)
    with socket.create_server(("127.0.0.1", 0)) as trial:
        public = f"tcp://127.0.0.1:{trial.getsockname()[1]}"
    reached = ["--public", public, "--key", key] if is_tcp else []
    engine = start(stack, env, ["engine.py", address, *load, *reached])
    if is_tcp:
        stack.enter_context(_MembersList(folder.members, public))
    listener = stack.enter_context(listen("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
    options = ["--fd", str(listener.fileno()), *(["--key", key] if is_tcp else [])]
    front_end = _start(stack, env, ["servers.py", "shipped", address, port, *options], listener.fileno())
    assert front_end.stdout is not None
    front_end.stdout.readline()
    return Pair(port, [psutil.Process(process.pid) for process in (engine, front_end)])


class _MembersList:
    """Tells front ends of one member, as the members' list does."""

    def __init__(self, address: str, member: str) -> None:
        self._address, self._over = address, threading.Event()
        self._data = msgspec.msgpack.encode(Members([MemberEngine(member)]))

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        told: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
        told.bind(self._address)
        while not self._over.wait(1.0):
            told.send(self._data)
        told.close(0)


def measure(pair: Pair, requests: int, tokens: int) -> Turn:
    before = pair.processor_s()
    sizes = ["--requests", str(requests), "--tokens", str(tokens)]
    heard = json.loads(subprocess.check_output([sys.executable, _HERE / "client.py", pair.port, *sizes]))
    assert heard["chunks"] >= 0.95 * requests * tokens, "chunks are missing"
    return Turn(heard["chunks"] / heard["seconds"], (pair.processor_s() - before) / heard["chunks"] * 1e6)


def first_token_ms(port: str) -> float:
    with socket.create_connection(("127.0.0.1", int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        sock.sendall(request(1, 1))
        seen = b""
        while b"data: " not in seen:
            seen += sock.recv(1 << 16)
        return (time.perf_counter() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=66)
    parser.add_argument("--singles", type=int, default=300)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        pairs = [pair(stack, is_tcp) for is_tcp in (False, True)]
        for each in pairs:  # warm-up
            measure(each, 64, 8)
        singles = [[first_token_ms(each.port) for each in pairs] for _ in range(arguments.singles)]
        sizes = arguments.requests, arguments.tokens
        turns = [[measure(each, *sizes) for each in pairs] for _ in range(arguments.turns)]
    local, tcp = (statistics.median(turn[i].rate for turn in turns) for i in range(2))
    ratio = statistics.median(turn[1].rate / turn[0].rate for turn in turns)
    times = [statistics.median(turn[i].token_us for turn in turns) for i in range(2)]
    cost = statistics.median(turn[1].token_us / turn[0].token_us for turn in turns)
    waits = [statistics.median(turn[i] for turn in singles) for i in range(2)]
    print("| | local socket | TCP and CURVE | |\n|---|---:|---:|---:|")
    print(f"| tokens/s | {local:,.0f} | {tcp:,.0f} | {ratio:.3f}x |")
    print(f"| processor time of a token, us | {times[0]:.1f} | {times[1]:.1f} | {cost:.3f}x |")
    print(f"| first token of one request, ms | {waits[0]:.2f} | {waits[1]:.2f} | {waits[1] - waits[0]:+.2f} |")


if __name__ == "__main__":
    main()
