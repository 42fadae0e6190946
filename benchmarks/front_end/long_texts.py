"""Bodies of 8 MiB that cannot be served, six at once: the front end's memory, and the waits of other clients.

    PYTHONPATH=tests python benchmarks/front_end/long_texts.py [KIND ...]

Memory is the front end's resident set, sampled every 10 ms. The other client is a process of its own that requests
`/health/live` repeatedly; the first line has its waits without any load. Both share the machine with six clients that
send 48 MiB as fast as they can, so on a busy machine the waits measure mostly that.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from fakes.served import serve

SIZE = 8 * 2**20 - 400
NUM_AT_ONCE = 6
WORDS = ("The quick brown fox jumps over the lazy dog, and then it rests. " * (SIZE // 64 + 1))[:SIZE]
HI = [{"role": "user", "content": "Hi"}]
KINDS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "words": ("/v1/completions", lambda: {"prompt": WORDS}),
    "one letter": ("/v1/completions", lambda: {"prompt": "a" * SIZE}),
    "spaces": ("/v1/completions", lambda: {"prompt": " " * SIZE}),
    "emoji": ("/v1/completions", lambda: {"prompt": "\U0001f600" * (SIZE // 12)}),
    "just within": ("/v1/completions", lambda: {"prompt": WORDS[:1_900_000]}),
    "list": ("/v1/completions", lambda: {"prompt": [WORDS[: SIZE // 8]] * 7}),
    "ids": ("/v1/completions", lambda: {"prompt": [1] * (SIZE // 3)}),
    "chat": ("/v1/chat/completions", lambda: {"messages": [{"role": "user", "content": WORDS}]}),
    "objects": ("/v1/chat/completions", lambda: {"messages": HI, "chat_template_kwargs": {"x": [{}] * (SIZE // 4)}}),
    "tokenize": ("/tokenize", lambda: {"prompt": WORDS}),
    "detokenize": ("/detokenize", lambda: {"tokens": [1] * (SIZE // 3)}),
    "llm-serving": ("/models/any/generate", lambda: {"inputs": WORDS}),
}
ASK = """
import sys, time, httpx
with httpx.Client(base_url=sys.argv[1], timeout=60) as http:
    while True:
        began = time.monotonic()
        http.get("/health/live")
        print(began, time.monotonic() - began, flush=True)
        time.sleep(0.005)
"""


class Watch:
    """Samples a process's memory and collects the other client's waits."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.peak_mib = 0.0
        self.waits: list[tuple[float, float]] = []  # when it was sent, and the seconds it waited
        self.is_over = False

    def mib(self) -> float:
        return float(self._process.memory_info().rss) / 2**20

    def look(self) -> None:
        while not self.is_over:
            self.peak_mib = max(self.peak_mib, self.mib())
            time.sleep(0.01)

    def longest_ms(self, since: float) -> float:
        return max((wait_s for began, wait_s in self.waits if began > since - 0.05), default=0.0) * 1000


@contextmanager
def watched(url: str, pid: int) -> Iterator[Watch]:
    watch = Watch(pid)
    innocent = subprocess.Popen([sys.executable, "-c", ASK, url], stdout=subprocess.PIPE, text=True)

    def hear() -> None:
        assert innocent.stdout is not None
        for line in innocent.stdout:
            began, wait_s = map(float, line.split())
            watch.waits.append((began, wait_s))

    threads = [threading.Thread(target=work, daemon=True) for work in (watch.look, hear)]
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        watch.is_over = True
        innocent.kill()
        innocent.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="Send a server six bodies of 8 MiB at once.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"kinds of bodies: {', '.join(KINDS)} (default: all)")
    kinds = parser.parse_args().kinds or list(KINDS)
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder) / "log", "--frontends", "1") as served:
        _, [front_end] = served.pids()
        with watched(served.url, front_end) as watch:
            time.sleep(2.0)
            print(f"idle: {watch.mib():.0f} MiB, longest wait {watch.longest_ms(0.0):.0f} ms\n")
            print("| kind | answers | before, MiB | most, MiB | 2 s after, MiB | seconds | longest wait, ms |")
            print("|---|---|---|---|---|---|---|")
            for kind in kinds:
                print(_row(kind, served.url, watch), flush=True)
    return 0


def _row(kind: str, url: str, watch: Watch) -> str:
    path, make = KINDS[kind]
    content = json.dumps(make()).encode()
    before, began, watch.peak_mib = watch.mib(), time.monotonic(), 0.0
    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        posts = [pool.submit(httpx.post, url + path, content=content, timeout=300) for _ in range(NUM_AT_ONCE)]
        codes = sorted({post.result().status_code for post in posts})
    took_s, peak, wait_ms = time.monotonic() - began, watch.peak_mib, watch.longest_ms(began)
    time.sleep(2.0)
    numbers = f"{before:.0f} | {peak:.0f} | {watch.mib():.0f} | {took_s:.1f} | {wait_ms:.0f}"
    return f"| {kind} | {', '.join(map(str, codes))} | {numbers} |"


if __name__ == "__main__":
    sys.exit(main())
