"""Clients that leave at random moments: at the end every block is free, nothing waits, and no file is left open.

    PYTHONPATH=tests python tests/stress/disconnect.py [--quick] [--connections 10000] [--at-once 256] [--seed 0]

A connection is closed or broken off while it is made, in the middle of its head or body, while its request waits or its
prompt is computed, or after some of the answer; few stay to the end. Most requests are short, so that ten thousand take
minutes; of twenty one has a prompt that takes several steps. Prints a table in Markdown; exit code 1 when a block is
held, a request is left, a process was replaced, the server has more files open than before, or memory grew by more than
16 MiB, once it is idle again.
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

from tqdm import tqdm

from fakes.served import serve
from stress.client import ask, fill, metric, names, num_files, request, settle, written_mib

SPARE_FILES = 8
MAX_GROWTH_MIB = 16
DROPPED = 'chairlift_requests_total{outcome="aborted",reason="client",route="/v1/completions"}'
ENDS = ("nothing", "part of the head", "part of the body", "the request", "some of the answer", "all of the answer")


def main() -> int:
    parser = argparse.ArgumentParser(description="Leave a server at random moments.")
    parser.add_argument("--quick", action="store_true", help="200 connections")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="default: the embedded one")
    options = parser.parse_args()
    num, at_once = (200, 50) if options.quick else (options.connections, options.at_once)
    # So small a cache is used to the last block soon: a block costs memory from its first use on.
    arguments = ["--frontends", 2, "--num-blocks", 256, *(["--model", options.model] if options.model else [])]
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder) / "log", *arguments) as served:
        parent = served.process.pid
        asyncio.run(fill(served.url))
        asyncio.run(leave(served.url, max(2 * at_once, num // 10), at_once, options.seed + 1))
        settle(served.url)
        named = names(served)
        before = num_files(parent), {pid: written_mib(pid) for pid in named}
        began, num_dropped = time.monotonic(), metric(served.url, DROPPED)
        ends = asyncio.run(leave(served.url, num, at_once, options.seed))
        took_s = time.monotonic() - began
        left = settle(served.url)
        num_dropped = metric(served.url, DROPPED) - num_dropped
        has_died = names(served) != named
        after = num_files(parent), {} if has_died else {pid: written_mib(pid) for pid in named}
    rows: dict[str, object] = {
        "connections": f"{num} in {took_s:.0f} s, {at_once} at once",
        **{f"left after {end}": ends[end] for end in ENDS},
        "requests dropped because their client had left": f"{num_dropped:.0f}",
        **{f"`{name}` at the end": f"{value:g}" for name, value in left.items()},
        "open files of all processes": f"{before[0]}, at the end {after[0]}",
        **{
            f"memory of {named[pid]}, MiB": f"{before[1][pid]:.1f}, at the end {now:.1f}"
            for pid, now in after[1].items()
        },
    }
    print("| disconnects | |\n|---|---:|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")
    wrong = [f"{name} is {value:g}" for name, value in left.items() if value]
    wrong += ["files stay open"] if after[0] > before[0] + SPARE_FILES else []
    grown_mib = sum(now - before[1][pid] for pid, now in after[1].items())
    wrong += [f"memory grew by {grown_mib:.0f} MiB"] if grown_mib > MAX_GROWTH_MIB else []
    wrong += ["a process died"] if has_died else []
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


async def leave(url: str, num: int, at_once: int, seed: int) -> Counter[str]:
    ends: Counter[str] = Counter()
    running = asyncio.Semaphore(at_once)
    progress = tqdm(total=num, unit="connections", disable=None)

    async def one(rng: random.Random) -> None:
        async with running:
            end = rng.choice(ENDS[:-1]) if rng.random() < 0.95 else ENDS[-1]
            ends[end] += 1
            await (ask(url, body(rng)) if end == ENDS[-1] else visit(url, end, rng))
            progress.update()

    with progress:
        await asyncio.gather(*(one(random.Random(f"{seed} {i}")) for i in range(num)))
    return ends


def body(rng: random.Random) -> dict[str, object]:
    num_words = rng.randint(300, 800) if rng.random() < 0.05 else rng.randint(1, 30)
    prompt = " ".join(rng.choice(("up", "down", "left", "right")) for _ in range(num_words))
    return {"prompt": prompt, "max_tokens": rng.randint(1, 32), "ignore_eos": True, "n": rng.choice((1, 1, 1, 2, 4))}


async def visit(url: str, end: str, rng: random.Random) -> None:
    where = urlsplit(url)
    if end == "nothing" and rng.random() < 0.5:
        with socket.socket() as connection:  # gone before the server knows of it
            connection.setblocking(False)
            connection.connect_ex((where.hostname, where.port))
        return
    sent = request(json.dumps(body(rng) | {"stream": rng.random() < 0.7}).encode())
    head = sent.index(b"\r\n\r\n") + 4
    try:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            if end == "part of the head":
                sent = sent[: rng.randrange(1, head)]
            elif end == "part of the body":
                sent = sent[: rng.randrange(head, len(sent))]
            if end != "nothing":
                writer.write(sent)
            if end == "some of the answer":
                await asyncio.wait_for(reader.read(rng.randint(1, 4000)), 5.0)
            await asyncio.sleep(rng.choice((0.0, rng.random() * 0.1, rng.random() * 2)))
            if rng.random() < 0.5:  # break it off: the server hears of it by an error
                broken = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, broken)
        finally:
            writer.close()
    except (OSError, TimeoutError):
        pass  # the server may close first, and we may not want to wait any more


if __name__ == "__main__":
    sys.exit(main())
