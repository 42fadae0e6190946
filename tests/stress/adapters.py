"""A thousand adapters loaded, used and unloaded under load: memory stays what it is, and nothing is lost.

    PYTHONPATH=tests python tests/stress/adapters.py [--minutes 10] [--adapters 1000] [--workers 4] [--out FILE.json]

A server of a tiny model with two replicas and two front ends, eight slots for adapters and little memory for others.
Workers load a random adapter, ask it twice, sometimes while it streams, reload it in place or unload it; the others ask
the base. Answers of one adapter must be equal, and differ from those of the base. Prints a line of JSON; exit code 1
when a request failed, an answer was another, a process was replaced, or the server's memory grew by 5 % or more (median
of the last fifth of the looks against that of the second).
"""

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from fakes.adapters import write_adapter
from fakes.served import Served, serve
from fakes.tiny_model import write_tiny_model

MAX_GROWTH = 0.05
LOOK_S = 5.0
SERVER = (
    "--frontends", 2, "--replicas", 2, "--max-running", 8, "--num-blocks", 200, "--max-loras", 8, "--lora-memory",
    "4MiB", "--admin-port", 0, "--dtype", "float32",
)  # fmt: skip
PROMPT = "Hello there, you"


@dataclass
class World:
    url: str
    admin: str
    folder: Path
    num_adapters: int
    ends: float
    base: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)  # of each adapter
    beside: list[threading.Thread] = field(default_factory=list)  # requests that an unload may meet
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def fault(self, what: str) -> None:
        with self.lock:
            self.faults.append(what)


def ask(http: httpx.Client, world: World, model: str, max_tokens: int = 12) -> str:
    body = {"model": model, "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    answer = http.post(f"{world.url}/v1/completions", json=body)
    answer.raise_for_status()
    world.note("requests")
    return str(answer.json()["choices"][0]["text"])


def change(http: httpx.Client, world: World, what: str, **body: object) -> None:
    http.post(f"{world.admin}/v1/{what}_lora_adapter", json=body).raise_for_status()
    world.note(what)


def use_one(http: httpx.Client, world: World, rng: random.Random, worker: int) -> None:
    """Loads an adapter under a name of the worker's, uses it and unloads it."""
    number, name = rng.randrange(world.num_adapters), f"worker-{worker}-{rng.randrange(1 << 30)}"
    change(http, world, "load", lora_name=name, lora_path=f"pool/{number}")
    check(http, world, name, number)
    if rng.random() < 0.3:
        number = rng.randrange(world.num_adapters)
        change(http, world, "load", lora_name=name, lora_path=f"pool/{number}", load_inplace=True)
        check(http, world, name, number)
    if rng.random() < 0.5:
        stream = threading.Thread(target=ask_beside, args=(world, name, number))
        world.beside.append(stream)
        stream.start()
        stream.join(0.4 * rng.random())  # it may be refused, or go on while the adapter is unloaded
        world.note("answered before unloading" if not stream.is_alive() else "unloaded meanwhile")
    change(http, world, "unload", lora_name=name)


def ask_beside(world: World, name: str, number: int) -> None:
    try:
        with httpx.Client(timeout=120) as http:
            check(http, world, name, number)
    except Exception as error:
        world.fault(f"beside an unload: {type(error).__name__}: {error}")


def check(http: httpx.Client, world: World, name: str, number: int) -> None:
    try:
        text = ask(http, world, name)
    except httpx.HTTPStatusError as error:
        if error.response.status_code == 404 and threading.current_thread().name.startswith("Thread-"):
            world.note("refused after unloading")
            return
        raise
    with world.lock:
        known = world.texts.setdefault(number, text)
    if text != known or text == world.base:
        world.fault(f"adapter {number} answered {text!r}, not {known!r}")


def work(world: World, worker: int) -> None:
    rng = random.Random(worker)
    with httpx.Client(timeout=120) as http:
        while time.monotonic() < world.ends:
            try:
                if worker == 0:
                    if ask(http, world, "tiny") != world.base:
                        world.fault("the base answered otherwise")
                else:
                    use_one(http, world, rng, worker)
            except Exception as error:
                world.fault(f"{type(error).__name__}: {error}")


def processes(served: Served) -> list[int]:
    largest, others = served.pids()
    return sorted([largest, *others])


def memory_mib(served: Served) -> float:
    parent = psutil.Process(served.process.pid)
    return sum(process.memory_info().rss for process in (parent, *parent.children(recursive=True))) / 2**20


def drive(served: Served, folder: Path, args: argparse.Namespace) -> dict[str, object]:
    admin = re.search(r"admin routes on (\S+)", served.output)
    assert admin is not None
    world = World(served.url, admin[1], folder, args.adapters, time.monotonic() + 60 * args.minutes)
    with httpx.Client(timeout=120) as http:
        world.base = ask(http, world, "tiny")
    before = processes(served)
    threads = [threading.Thread(target=work, args=(world, i), name=f"worker {i}") for i in range(1 + args.workers)]
    for thread in threads:
        thread.start()
    looks = []
    while time.monotonic() < world.ends:
        time.sleep(min(LOOK_S, max(0.1, world.ends - time.monotonic())))
        looks.append(memory_mib(served))
    for thread in threads:
        thread.join()
    for thread in world.beside:
        thread.join()
    fifth = max(1, len(looks) // 5)
    first, last = statistics.median(looks[fifth : 2 * fifth] or looks), statistics.median(looks[-fifth:])
    if processes(served) != before:
        world.fault("a process was replaced")
    return {
        "minutes": args.minutes, **world.counts, "adapters used": len(world.texts), "memory_mib": round(last),
        "growth": round(last / first - 1, 4), "faults": len(world.faults), "first_faults": world.faults[:5],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--adapters", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "adapters"
        for number in range(args.adapters):
            write_adapter(folder / "pool" / str(number), seed=number, rank=1 + number % 16)
        model = write_tiny_model(Path(temporary) / "tiny")
        with serve(Path(temporary) / "log", "--model", model, "--lora-dir", folder, *SERVER) as served:
            found = drive(served, folder, args)
    line = json.dumps(found)
    print(line)
    if args.out is not None:
        args.out.write_text(line + "\n")
    return int(bool(found["faults"]) or float(str(found["growth"])) >= MAX_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
