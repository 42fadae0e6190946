"""What reading and loading an adapter costs others: the time between two tokens of a stream of the base.

    python benchmarks/cpu/adapter_loads.py [--rank 16] [--loads 20] [--every-s 0.5] [--idle-s 3]
        [--model DIR [--random-weights]]

Starts a server. One client streams answers of the base. Beside it, nothing (quiet), a request of one token by an
adapter that is there (warm), or by one that no request has named before (cold), every half second, in turn. Without
--model it is the embedded one. The server is left alone for `--idle-s` first: on a GPU it captures likely steps
meanwhile, 20 s for a model of 7B. Prints percentiles of the gaps in milliseconds, and of the time until the other
request has its token.
"""

import argparse
import http.client
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from machine import describe
from make_adapter import config_of, write_adapter

from chairlift.lab.sim.calibration.serving_path import serving

PROMPT = "The Alps are"
BASE = "base"


def events(url: str, model: str, max_tokens: int) -> Iterator[float]:
    """When each event of a streamed completion comes."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    body = {"model": model, "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "stream": True}
    body |= {"ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{model}: {response.read().decode()}")
    while line := response.readline():
        if line.startswith(b"data: {"):
            yield time.perf_counter()
    connection.close()


def gaps_beside(url: str, ask: Callable[[], object], num: int, every_s: float) -> tuple[list[float], list[float]]:
    """Seconds between two tokens of the base while `ask` is called so often, and how long each call took."""
    gaps, took, is_over = list[float](), list[float](), threading.Event()

    def stream() -> None:
        while not is_over.is_set():
            before = None
            for now in events(url, BASE, 100):
                gaps.extend([] if before is None else [now - before])
                before = now

    thread = threading.Thread(target=stream)
    thread.start()
    for _ in range(num):
        time.sleep(every_s)
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    is_over.set()
    thread.join()
    return gaps, took


def shown(seconds: list[float]) -> str:
    p50, p99 = np.percentile(seconds, [50, 99])
    most = " ".join(f"{1000 * each:.1f}" for each in sorted(seconds)[-3:])
    return f"p50 {1000 * p50:6.1f}  p99 {1000 * p99:6.1f}  longest {most}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a stream while adapters are read and loaded.")
    parser.add_argument("--model")
    parser.add_argument("--random-weights", action="store_true")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--every-s", type=float, default=0.5)
    parser.add_argument("--idle-s", type=float, default=3.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        names = [f"a{index}" for index in range(args.loads + 1)]
        num_bytes = write_adapter(Path(folder) / names[0], config_of(args.model), args.rank)
        for name in names[1:]:
            shutil.copytree(Path(folder) / names[0], Path(folder) / name, copy_function=os.link)
        flags = ["--model", args.model] if args.model else []
        flags += ["--load-format", "dummy", "--dtype", "bfloat16"] if args.random_weights else []
        flags += ["--served-model-name", BASE, "--lora-dir", folder, "--max-loras", "8"]
        flags += ["--max-lora-rank", str(max(64, args.rank)), "--kv-memory", "512MiB", "--max-model-len", "256"]
        with serving(flags) as url:
            fresh = iter(names)

            def ask(name: str) -> None:
                next(events(url, name, 1))

            ask(next(fresh))
            time.sleep(args.idle_s)
            ways: dict[str, Callable[[], object]] = {
                "quiet": lambda: None,
                "warm": lambda: ask(names[0]),
                "cold": lambda: ask(next(fresh)),
            }
            print(f"{', '.join(describe().values())}; adapters of {num_bytes / 1e6:.0f} MB, rank {args.rank}")
            for name, way in ways.items():
                gaps, took = gaps_beside(url, way, args.loads, args.every_s)
                print(f"{name:6} gaps {shown(gaps)}   first token {shown(took)}", flush=True)


if __name__ == "__main__":
    main()
