"""Attacks by strangers and by clients with a key: memory, the longest wait of an innocent client, connections held.

    PYTHONPATH=tests python tests/stress/strangers.py [--quick] [--only NAME ...] [--model MODEL]

Each attack is a process of its own against a real server with one front end, while a client with a key asks for a token
again and again. Always: no process of the server may grow by more than 64 MiB, no request of the innocent client may
fail or take 100 ms longer than the slowest beside ordinary requests (beside work that the engine has to do: no probe of
its health may), no connection may outlive its time, no process may die. Prints a table in Markdown; exit code 1 when
anything of this is not so. `--quick`: small sizes, and waits are shown but not judged.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from fakes.certificate import make_certificate
from fakes.served import Served, serve
from stress.attacks import ATTACKS, PATIENCE_S, TLS_ATTACKS
from stress.client import names, written_mib

KEY, OTHER = "an-innocent-client-s-key", "another-client-s-key"
MAX_GROWTH_MIB = 64
MAX_LONGER_S = 0.1
PAUSE_S = 0.02  # between two requests of the innocent client
SERVER = ("--frontends", 1, "--api-key", f"{KEY},{OTHER}", "--max-connections", 400, "--num-blocks", 512)


WORKING = (
    "shapes that take long",
    "products of small fields",
    "a queue that one body fills",
)  # the engine has its part
LINGERING = ("streams that are not read", "all connections of an address")  # the next waits until they are over


class Size(NamedTuple):
    receive_s: float  # that the server gives a request to arrive, and a client to read
    share: float  # of an attack


class Seen(NamedTuple):
    attack: str
    outcomes: str
    grown_mib: float
    at_the_end_mib: float
    slowest_s: float
    num_asked: int
    wrong: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack a server.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[*ATTACKS, *TLS_ATTACKS], default=[])
    parser.add_argument("--model", help="default: the embedded one")
    options = parser.parse_args()
    size = Size(receive_s=1.0, share=0.1) if options.quick else Size(receive_s=4.0, share=1.0)
    arguments = [*SERVER, "--max-receive-seconds", size.receive_s, "--slow-reader-seconds", size.receive_s]
    arguments += ["--model", options.model] if options.model else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate = make_certificate(folder)
        secure = ("--tls-cert", certificate.cert, "--tls-key", certificate.key)
        seen = list(attacked(folder / "log", arguments, ATTACKS, options.only, size))
        seen += attacked(folder / "secure-log", [*arguments, *secure], TLS_ATTACKS, options.only, size)
    return report(seen, has_limits=not options.quick)


def attacked(
    log: Path, arguments: list[object], attacks: dict[str, object], only: list[str], size: Size
) -> Iterator[Seen]:
    chosen = [name for name in attacks if not only or name in only]
    if not chosen:
        return
    with serve(log, *arguments) as served:
        fill(served.url)
        for name in chosen:
            print(f"strangers: {name}", file=sys.stderr, flush=True)
            yield attack(served, name, size)
            time.sleep(size.receive_s if name in LINGERING else 0.1)


def fill(url: str) -> None:
    """Has the server use its whole KV cache once: a block costs memory from its first use on."""
    with client_of(url) as client:
        for number in range(16):
            client.post("/v1/completions", json={"prompt": f"{number} lifts go up. " * 120, "max_tokens": 1})


def client_of(url: str) -> httpx.Client:
    """From an address of its own."""
    transport = httpx.HTTPTransport(local_address="127.0.0.8", verify=False)
    headers = {"Authorization": f"Bearer {KEY}", "Host": "localhost"}
    return httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S, transport=transport)


def attack(served: Served, name: str, size: Size) -> Seen:
    named = names(served)
    before = {pid: written_mib(pid) for pid in named}
    with watched(named) as most, innocent(served.url) as waits:
        command = [sys.executable, str(Path(__file__).with_name("attacks.py")), name, served.url]
        run = subprocess.run(
            [*command, OTHER, *map(str, size)], capture_output=True, text=True, timeout=20 * PATIENCE_S
        )
        time.sleep(0.1)
    if run.returncode:
        return Seen(name, "", 0.0, 0.0, 0.0, 0, [f"the attack itself failed: {run.stderr[-2000:]}"])
    found = json.loads(run.stdout)
    wrong: list[str] = found["wrong"]
    if names(served) != named:
        return Seen(name, "", 0.0, 0.0, 0.0, 0, [*wrong, f"a process died: {served.output[-2000:]}"])
    grown = {pid: most[pid] - before[pid] for pid in named}
    largest = max(grown, key=lambda pid: grown[pid])
    if grown[largest] > MAX_GROWTH_MIB:
        wrong.append(f"{named[largest]} grew from {before[largest]:.0f} to {most[largest]:.0f} MiB")
    wrong += [f"the innocent client got {each}" for each in waits.failed]
    outcomes = ", ".join(f"{number} {what}" for what, number in sorted(found["outcomes"].items()))
    at_the_end = max(written_mib(pid) - before[pid] for pid in named)
    slowest_s = max(waits.of_health if name in WORKING else waits.seconds, default=0.0)
    return Seen(name, outcomes, grown[largest], at_the_end, slowest_s, len(waits.seconds), wrong)


@contextmanager
def watched(named: dict[int, str]) -> Iterator[dict[int, float]]:
    """The most memory that each process has meanwhile."""
    most = dict.fromkeys(named, 0.0)

    def watch() -> None:
        for pid in most:
            with suppress(OSError):  # it died, which others notice
                most[pid] = max(most[pid], written_mib(pid))

    with again_and_again(watch, 0.05):
        yield most


@contextmanager
def again_and_again(work: Callable[[], None], pause_s: float) -> Iterator[None]:
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


class Waits:
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.of_health: list[float] = []
        self.failed: list[str] = []


@contextmanager
def innocent(url: str) -> Iterator[Waits]:
    """A client that keeps asking, in turn for the server's health and for a token."""
    waits = Waits()

    def ask() -> None:
        for body in (None, {"prompt": "Hi", "max_tokens": 1}):
            began = time.monotonic()
            try:
                answer = client.get("/health") if body is None else client.post("/v1/completions", json=body)
                waits.seconds.append(time.monotonic() - began)
                waits.of_health += waits.seconds[-1:] if body is None else []
                waits.failed += [] if answer.status_code == 200 else [f"{answer.status_code} {answer.text[:200]}"]
            except httpx.HTTPError as error:
                waits.failed.append(f"{type(error).__name__}: {error}")

    with client_of(url) as client, again_and_again(ask, PAUSE_S):
        yield waits


def report(seen: list[Seen], has_limits: bool) -> int:
    usual_s = seen[0].slowest_s
    wrong = [f"{each.attack}: {what}" for each in seen for what in each.wrong]
    print(
        "| attack | what came of it | most that a process grew, MiB | left of it | slowest innocent request, ms | of |"
    )
    print("|---|---|---:|---:|---:|---:|")
    for each in seen:
        if has_limits and each.slowest_s > usual_s + MAX_LONGER_S:
            wrong.append(f"{each.attack}: an innocent request took {each.slowest_s:.2f} s")
        print(
            f"| {each.attack} | {each.outcomes} | {each.grown_mib:.1f} | {each.at_the_end_mib:.1f} "
            f"| {each.slowest_s * 1000:.0f} | {each.num_asked} |"
        )
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
