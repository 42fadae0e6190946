"""Freezes front ends under streams: one is stopped by a signal, one has its event loop blocked in Python.

    PYTHONPATH=tests python tests/stress/frozen.py [--streams 64] [--frontends 3] [--timeout 10]

Every stream must end: those of frozen front ends when these are killed, the others whole, as must requests that come
meanwhile. Prints a table in Markdown; exit code 1 when a stream was silent, or broke where nothing was frozen.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fakes.patience import wait_until
from fakes.served import Served, serve
from stress.client import ask, metric, request

BLOCK = signal.SIGRTMIN  # to a front end of a server that has the hook
HOOK = f"import signal, time\nsignal.signal({int(BLOCK)}, lambda *_: time.sleep(1e6))\n"  # sitecustomize.py
_SOURCE = Path(__file__).parents[2] / "src"


@dataclass
class Stream:
    """That has begun."""

    front: int  # the process that serves it
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def end(self) -> str:
        last = b""
        try:
            while line := await self.reader.readline():
                last = line.strip() or last
        except OSError:
            return "broken"
        finally:
            self.writer.close()
        is_chunk_end = last == b"0"  # of a chunked body
        return "whole" if is_chunk_end else "told" if b'"error"' in last else "broken"


async def open_at(url: str, front: int, fronts: Sequence[int], max_tokens: int, count: int = 1) -> list[Stream]:
    """Streams of one front end: the others are stopped until they have begun."""
    with _stopped([pid for pid in fronts if pid != front]):
        return await asyncio.gather(*(_open(url, front, max_tokens) for _ in range(count)))


async def _open(url: str, front: int, max_tokens: int) -> Stream:
    where = urlsplit(url)
    body = {"prompt": "The lift goes up", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=2**20)
    writer.write(request(json.dumps(body).encode()))
    await reader.readuntil(b"data: ")
    return Stream(front, reader, writer)


@contextmanager
def _stopped(pids: Sequence[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def _run(served: Served, num_streams: int) -> bool:
    fronts = served.pids()[1]
    streams: list[Stream] = []
    for place, front in enumerate(fronts):
        count = len(range(place, num_streams, len(fronts)))
        streams += await open_at(served.url, front, fronts, 800 if place < 2 else 100, count)
    ends = [asyncio.ensure_future(_timed(stream, time.monotonic())) for stream in streams]
    os.kill(fronts[0], signal.SIGSTOP)
    os.kill(fronts[1], BLOCK)
    ready = asyncio.ensure_future(_until_ready(served, time.monotonic()))
    asked = [await ask(served.url, {"prompt": "And down", "max_tokens": 4}) for _ in range(20)]
    found = await asyncio.gather(*ends)
    ready_s = await ready
    wait_until(lambda: metric(served.url, "chairlift_requests_running") == 0)
    is_well = all(outcome.kind == "answered" for outcome in asked)
    print("| front end | streams | whole | told | broken | longest until the end, s |\n|---|---:|---:|---:|---:|---:|")
    for place, front in enumerate(fronts):
        what = ("stopped", "blocked in Python")[place] if place < 2 else "not touched"
        mine = [(kind, over_s) for stream, (kind, over_s) in zip(streams, found, strict=True) if stream.front == front]
        kinds = Counter(kind for kind, _ in mine)
        numbers = f"{kinds['whole']} | {kinds['told']} | {kinds['broken']} | {max(over_s for _, over_s in mine):.1f}"
        print(f"| {what} | {len(mine)} | {numbers} |")
        is_well &= place < 2 or set(kinds) == {"whole"}
    slowest_s = max(outcome.status_s for outcome in asked)
    print(f"\n{len(asked)} requests meanwhile: {Counter(each.kind for each in asked)}, slowest {slowest_s:.2f} s")
    print(f"both front ends ready again after {ready_s:.1f} s")
    return is_well


async def _until_ready(served: Served, began: float) -> float:
    while served.output.count("is ready again after") < 2:
        await asyncio.sleep(0.05)
    return time.monotonic() - began


async def _timed(stream: Stream, began: float) -> tuple[str, float]:
    return await stream.end(), time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description="Freeze front ends of a server.")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--frontends", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=10.0)
    options = parser.parse_args()
    arguments = ("--threads", "1", "--frontends", options.frontends, "--frontend-timeout", options.timeout)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(HOOK)
        with serve(Path(folder, "log"), *arguments, environment={"PYTHONPATH": f"{folder}:{_SOURCE}"}) as served:
            return 0 if asyncio.run(_run(served, options.streams)) else 1


if __name__ == "__main__":
    sys.exit(main())
