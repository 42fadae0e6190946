"""What others notice of a server meanwhile: waits of innocent clients, and the memory of its processes.

Always: each request of an innocent client has a connection of its own, so that all front ends are asked. A bare server
is asked as often: what it waits is the machine's.
"""

import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

import httpx

from fakes.served import Served
from stress.client import names, written_mib

PATIENCE_S = 30.0
MAX_PROBE_S = 0.25
MAX_GROWTH_MIB, GROWTH_PER_BYTE = 64, 8
MIB = 2**20
_PAUSE_S = 0.05  # between two requests
_WATCH_S = 0.01  # between two looks at memory
_SOURCE = ("127.0.0.8", 0)  # of innocent clients: an address of their own
_AT_WORK = ("chairlift_requests_running", "chairlift_requests_waiting")
_NONE: Mapping[int, float] = MappingProxyType({})
_HEALTH = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_BARE = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    connection = server.accept()[0]
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    connection.close()
"""


@dataclass
class Beside:
    health: list[float] = field(default_factory=list)  # seconds until the first bytes of each answer
    work: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    before: dict[int, float] = field(default_factory=dict)  # MiB of each process, or the most that it had before
    most: dict[int, float] = field(default_factory=dict)

    @property
    def probe_s(self) -> float:
        """The slowest look at the server's health, without the machine's part."""
        return max(0.0, max(self.health, default=0.0) - max(self.bare, default=0.0))

    @property
    def work_s(self) -> float:
        return max(0.0, max(self.work, default=0.0) - max(self.bare, default=0.0))

    @property
    def grown(self) -> tuple[int, float]:
        """The process that grew most, and by how many MiB."""
        pid = max(self.most, key=lambda pid: self.most[pid] - self.before[pid])
        return pid, self.most[pid] - self.before[pid]


@contextmanager
def beside(served: Served, bare_port: int, request: bytes = b"", peak: Mapping[int, float] = _NONE) -> Iterator[Beside]:
    """`request`: an innocent client's, for work. `peak`: MiB that processes may take without having grown."""
    pids = list(names(served))
    before = {pid: written_mib(pid) for pid in pids}
    found = Beside(before={pid: max(before[pid], peak.get(pid, 0.0)) for pid in pids}, most=before)

    def watch() -> None:
        for pid in pids:
            with suppress(OSError):  # it died, which others notice
                found.most[pid] = max(found.most[pid], written_mib(pid))

    asked = [(f"http://127.0.0.1:{bare_port}", _HEALTH, found.bare), (served.url, _HEALTH, found.health)]
    asked += [(served.url, request, found.work)] if request else []
    with ExitStack() as stack:
        stack.enter_context(again_and_again(watch, _WATCH_S))
        for each in asked:
            stack.enter_context(again_and_again(lambda each=each: _ask(*each, found.failed)))  # type: ignore[misc]
        yield found


def _ask(url: str, request: bytes, waits: list[float], failed: list[str]) -> None:
    began = time.monotonic()
    try:
        answer = first_bytes(url, request)
        waits.append(time.monotonic() - began)
        if b" 200 " not in answer[:20]:
            failed.append(answer.decode("latin-1")[:200])
    except OSError as error:
        waits.append(time.monotonic() - began)
        failed.append(f"{type(error).__name__}: {error}")


def first_bytes(url: str, request: bytes) -> bytes:
    where = urlsplit(url)
    plain = socket.create_connection((where.hostname, where.port), PATIENCE_S, _SOURCE)
    with plain, _TRUST.wrap_socket(plain) if where.scheme == "https" else plain as sock:
        sock.sendall(request)
        return sock.recv(65536)


def wait_idle(served: Served, headers: Mapping[str, str]) -> None:
    """Until nothing of it runs any more: work that goes on after the client left is its body's too."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(httpx.HTTPError):
            text = httpx.get(f"{served.url}/metrics", timeout=PATIENCE_S, headers=headers, verify=_TRUST).text
            gauges = [line for line in text.splitlines() if line.startswith(_AT_WORK)]
            if not any(float(line.split()[-1]) for line in gauges):
                return
        time.sleep(0.2)


def _trusting() -> ssl.SSLContext:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


_TRUST = _trusting()


@contextmanager
def bare_server() -> Iterator[int]:
    """Its port."""
    with subprocess.Popen([sys.executable, "-S", "-c", _BARE], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def again_and_again(work: Callable[[], None], pause_s: float = _PAUSE_S) -> Iterator[None]:
    """In a thread, meanwhile."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(pause_s):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
