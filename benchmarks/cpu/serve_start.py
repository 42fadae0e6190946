"""`chairlift serve` as a newcomer starts it: seconds from the start of the process to the first token, and its memory.

    PYTHONPATH=tests python benchmarks/cpu/serve_start.py [--rounds 3] [options of `chairlift serve`]

Each round starts a new server. Memory is the proportional set size summed over its processes (pages that they share
counted once), after 32 requests at once of 32 tokens each. The first round reads files that may not be cached yet.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil

from fakes.served import Served, serve


class Round(NamedTuple):
    ready_s: float
    first_token_s: float
    after_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the start of a server and weigh it.")
    parser.add_argument("--rounds", type=int, default=3)
    args, options = parser.parse_known_args()
    print("| round | ready, s | first token, s | PSS after 32 requests, MB |\n|---|---|---|---|")
    rounds = [run(options) for _ in range(args.rounds)]
    for number, done in enumerate(rounds, 1):
        print(f"| {number} | {done.ready_s:.2f} | {done.first_token_s:.2f} | {done.after_mb:.0f} |")
    ready_s, first_token_s, after_mb = (statistics.median(values) for values in zip(*rounds, strict=True))
    print(f"| median | {ready_s:.2f} | {first_token_s:.2f} | {after_mb:.0f} |")


def run(options: Sequence[str]) -> Round:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with serve(Path(folder) / "log", *options) as served:
            wait_for_token(served)
            first_token_s = time.monotonic() - began
            with ThreadPoolExecutor(32) as threads:
                list(threads.map(lambda i: ask(served, f"Tell me about the number {i}."), range(32)))
            return Round(served.ready_s, first_token_s, resident_bytes(served) / 1e6)


def wait_for_token(served: Served) -> None:
    body = {"prompt": "The lift", "max_tokens": 8, "stream": True}
    with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=60) as response:
        next(line for line in response.iter_lines() if line.startswith("data:"))


def ask(served: Served, question: str) -> None:
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 32}
    httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=120).raise_for_status()


def resident_bytes(served: Served) -> int:
    parent = psutil.Process(served.process.pid)
    return sum(process.memory_full_info().pss for process in (parent, *parent.children(recursive=True)))


if __name__ == "__main__":
    main()
