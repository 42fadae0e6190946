"""Clients that leave at random moments: at the end every block is free, nothing waits, and no file is left open.

    PYTHONPATH=tests python benchmarks/chaos_disconnect.py [--quick] [--connections 10000] [--at-once 64] [--seed 0]

A connection is closed or broken off before its request, in the middle of its head or body, before the answer, or after
some of it, and sometimes not at all. Prints a table in Markdown; exit code 1 when a block is held, a request is left, a
process was replaced, or the server has more files open than before, once it is idle again.
"""

import argparse
import asyncio
import json
import random
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from chaos_client import ask, memory_mib, num_files, processes, request, settle

from fakes.served import serve

SPARE_FILES = 8
ENDS = ("nothing sent", "part of a request", "whole request", "some of the answer", "all of the answer")


def main() -> int:
    parser = argparse.ArgumentParser(description="Leave a server at random moments.")
    parser.add_argument("--quick", action="store_true", help="300 connections")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="default: the embedded one")
    options = parser.parse_args()
    num = 300 if options.quick else options.connections
    arguments = ["--frontends", 2, *(["--model", options.model] if options.model else [])]
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder) / "log", *arguments) as served:
        parent = served.process.pid
        asyncio.run(leave(served.url, 2 * options.at_once, options.at_once, options.seed + 1))
        settle(served.url)
        before = num_files(parent), memory_mib(parent), sorted(p.pid for p in processes(parent))
        began = time.monotonic()
        ends = asyncio.run(leave(served.url, num, options.at_once, options.seed))
        took_s = time.monotonic() - began
        left = settle(served.url)
        after = num_files(parent), memory_mib(parent), sorted(p.pid for p in processes(parent))
    rows: dict[str, object] = {
        "connections": f"{num} in {took_s:.0f} s, {options.at_once} at once",
        **{f"left after: {end}": ends[end] for end in ENDS},
        **{f"`{name}` at the end": f"{value:g}" for name, value in left.items()},
        "open files of all processes": f"{before[0]}, at the end {after[0]}",
        "memory of all processes, MiB": f"{before[1]:.0f}, at the end {after[1]:.0f}",
    }
    print("| disconnects | |\n|---|---:|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")
    wrong = [f"{name} is {value:g}" for name, value in left.items() if value]
    wrong += ["files stay open"] if after[0] > before[0] + SPARE_FILES else []
    wrong += ["a process died"] if after[2] != before[2] else []
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


async def leave(url: str, num: int, at_once: int, seed: int) -> Counter[str]:
    ends: Counter[str] = Counter()
    seats = asyncio.Semaphore(at_once)

    async def one(rng: random.Random) -> None:
        async with seats:
            end = rng.choice(ENDS[:-1]) if rng.random() < 0.9 else ENDS[-1]
            ends[end] += 1
            await (ask(url, body(rng)) if end == ENDS[-1] else visit(url, end, rng))

    await asyncio.gather(*(one(random.Random(f"{seed} {i}")) for i in range(num)))
    return ends


def body(rng: random.Random) -> dict[str, object]:
    prompt = " ".join(rng.choice(("up", "down", "left", "right")) for _ in range(rng.randint(1, 300)))
    return {"prompt": prompt, "max_tokens": rng.randint(1, 64), "ignore_eos": True, "n": rng.choice((1, 1, 1, 2, 4))}


async def visit(url: str, end: str, rng: random.Random) -> None:
    where = urlsplit(url)
    sent = request(json.dumps(body(rng) | {"stream": rng.random() < 0.7}).encode())
    try:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            if end == "part of a request":
                sent = sent[: rng.randrange(1, len(sent))]
            if end != "nothing sent":
                writer.write(sent)
            if end == "some of the answer":
                await asyncio.wait_for(reader.read(rng.randint(1, 4000)), rng.choice((0.05, 5.0)))
            await asyncio.sleep(rng.choice((0.0, 0.0, rng.random() * 0.3)))
            if rng.random() < 0.5:  # break it off: the server hears of it by an error
                broken = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, broken)
        finally:
            writer.close()
    except (OSError, TimeoutError):
        pass  # the server may close first, and we may not want to wait any more


if __name__ == "__main__":
    sys.exit(main())
