"""What the chaos scripts share: a request on a connection of its own and what became of it, and a look at the server.

Always: every request that is begun has one outcome, whatever the server does.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from fakes.served import Served

GAUGES = (
    'chairlift_kv_blocks{state="held"}',
    'chairlift_kv_blocks{state="swapped"}',
    "chairlift_requests_running",
    "chairlift_requests_waiting",
    "chairlift_requests_preempted",
)


@dataclass(slots=True)
class Outcome:
    status: int | None = None  # None: the connection ended without an answer
    status_s: float = 0.0  # from the start, connecting included, to the status line
    first_s: float = 0.0  # to the first piece of text
    is_full: bool = False  # a stream that came to its proper end
    error: str = ""

    @property
    def kind(self) -> str:
        if self.status == 200:
            return "answered" if self.is_full else "cut"
        return "lost" if self.status is None else str(self.status)


async def ask(url: str, body: dict[str, Any], timeout_s: float = 120.0) -> Outcome:
    """A streamed completion."""
    outcome = Outcome()
    try:
        async with asyncio.timeout(timeout_s):
            await _ask(url, json.dumps(body | {"stream": True}).encode(), outcome)
    except (OSError, EOFError, TimeoutError, ValueError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
    return outcome


async def _ask(url: str, body: bytes, outcome: Outcome) -> None:
    began = time.monotonic()
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=2**20)
    try:
        writer.write(request(body))
        status = await reader.readuntil(b"\r\n")
        outcome.status, outcome.status_s = int(status.split()[1]), time.monotonic() - began
        await reader.readuntil(b"\r\n\r\n")
        while line := await reader.readline():
            if line.startswith(b"data: ") and not outcome.first_s:
                outcome.first_s = time.monotonic() - began
            if line.startswith(b'data: {"error"'):
                outcome.error = line.decode()
            outcome.is_full |= line.startswith(b"data: [DONE]") and not outcome.error
    finally:
        writer.close()


def request(body: bytes) -> bytes:
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        % len(body)
        + body
    )


def processes(parent: int) -> list[psutil.Process]:
    return [psutil.Process(parent), *psutil.Process(parent).children(recursive=True)]


def names(served: Served) -> dict[int, str]:
    """Of the server's processes, by their ids."""
    engine, fronts = served.pids()
    named = {served.process.pid: "parent", engine: "engine"}
    named |= {pid: f"front end {number}" for number, pid in enumerate(fronts, 1)}
    return named | {p.pid: "tracker" for p in processes(served.process.pid) if p.pid not in named}


def written_mib(pid: int) -> float:
    """The memory that a process has written to. Pages of mapped files are left out: how many of a library's a process
    has to itself depends on what else runs on the machine."""
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(kib) for kib in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.MULTILINE)) / 2**10


def num_files(parent: int) -> int:
    return sum(process.num_fds() for process in processes(parent))


def metric(url: str, name: str) -> float:
    """A series of /metrics, labels included."""
    for line in httpx.get(f"{url}/metrics", timeout=30).text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    raise LookupError(f"/metrics has no {name}")


async def fill(url: str) -> None:
    """Has the server take the memory that it takes at most: several long prompts at once, so that there are steps as
    large as any, and then prompts one after the other until every block keeps a part of one, but for the last block of
    the last, which is not full."""
    await asyncio.gather(*(ask(url, _long_prompt(number)) for number in range(8)))
    for number in range(8, 100):
        if metric(url, 'chairlift_kv_blocks{state="free"}') <= 1:
            return
        await ask(url, _long_prompt(number))
    raise TimeoutError("the KV cache does not fill up")


def _long_prompt(number: int) -> dict[str, Any]:
    return {"prompt": f"{number} lifts go up and down again. " * 50, "max_tokens": 1}


def settle(url: str, timeout_s: float = 30.0) -> dict[str, float]:
    """What is left when nothing more happens."""
    deadline = time.monotonic() + timeout_s
    while True:
        time.sleep(1.5)  # connections that were refused linger for a second
        left = {name: metric(url, name) for name in GAUGES}
        if not any(left.values()) or time.monotonic() > deadline:
            return left


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0
