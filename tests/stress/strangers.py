"""Attacks by strangers and by clients with a key: memory, the longest wait of an innocent client, connections held.

    PYTHONPATH=tests python tests/stress/strangers.py [--quick] [--only NAME ...] [--share S] [--model MODEL]

Each attack is a process of its own against a real server with two front ends, while clients with a key ask for its
health and for a token again and again. Always: no process of the server may grow by more than 64 MiB and eight times
the largest body beyond what honest bodies took, no request of an innocent client may fail, a look at the server's
health takes 250 ms at most, a request twice as long as beside an honest body of as many tokens, no connection may
outlive its time, no process may die. What a bare server on the same machine waits is taken off. Prints a table in
Markdown; exit code 1 when anything of this is not so. `--quick`: small sizes; of waits only those of seconds are
judged.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from fakes.adapters import write_adapter
from fakes.certificate import make_certificate
from fakes.served import Served, chairlift_command, serve
from fakes.tiny_model import write_reranker
from stress.attacks import (
    ALL,
    ATTACKS,
    BODIES,
    EMBED_ATTACKS,
    LOG_ATTACKS,
    PATIENCE_S,
    RERANK_ATTACKS,
    TLS_ATTACKS,
    TOGETHER,
    TWINS,
)
from stress.beside import GROWTH_PER_BYTE, MAX_GROWTH_MIB, MAX_PROBE_S, Beside, bare_server, beside, wait_idle
from stress.client import names
from stress.dear_bodies import WARMING

KEY, OTHER = "an-innocent-client-s-key", "another-client-s-key"
HEADERS = {"Authorization": f"Bearer {KEY}", "Host": "localhost"}
MAX_LONGER_S = 0.1
FROZEN_S = 3.0  # what a look at the health of a quick run's server may take
LARGEST_MIB = 8  # of a body: the server's limit
COMMON = ("--frontends", 2, "--api-key", f"{KEY},{OTHER}", "--max-connections", 400, "--kernels", "torch")
LINGERING = ("streams that are not read", "all connections of an address")  # the next waits until they are over
LARGE = ("8 MiB of text, six at once", "hostile bodies", "fields with very many entries")  # of as many bytes
WORK = ("/v1/completions", {"prompt": "Hi", "max_tokens": 1})
RANK = ("/v1/rerank", {"query": "Hi", "documents": ["a"]})
EMBED = ("/v1/embeddings", {"input": "the lift"})


class Size(NamedTuple):
    receive_s: float  # that the server gives a request to arrive, and a client to read
    share: float  # of an attack


class Site(NamedTuple):
    """A server, and what it is attacked with."""

    attacks: list[str]
    arguments: Callable[[], tuple[object, ...]]
    innocent: tuple[str, dict[str, object]] = WORK  # a route and a body
    is_read: bool = True  # its log


class Seen(NamedTuple):
    attack: str
    outcomes: str
    grown_mib: float
    beside: Beside
    wrong: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack a server.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(ALL), default=[])
    parser.add_argument("--share", type=float, help="of the sizes of attacks; default: 1, or 0.1 with --quick")
    parser.add_argument("--model", type=Path, help="default: the embedded one")
    options = parser.parse_args()
    size = Size(1.0, options.share or 0.1) if options.quick else Size(4.0, options.share or 1.0)
    seen: list[Seen] = []
    with tempfile.TemporaryDirectory() as name, bare_server() as bare:
        folder = Path(name)
        for number, site in enumerate(sites(folder, options.model, is_quick=options.quick)):
            only = {*options.only, *(TWINS[name] for name in options.only if name in TWINS)}
            chosen = [name for name in site.attacks if not only or name in only]
            if chosen:
                seen += attacked(site, chosen, folder / f"log-{number}", bare, size)
    return report(seen, has_limits=not options.quick)


def sites(folder: Path, model: Path | None, is_quick: bool) -> Iterator[Site]:
    def common() -> tuple[object, ...]:
        return "--num-blocks", 512, *(("--model", model) if model else ())

    def with_adapters() -> tuple[object, ...]:
        write_hostile_adapters(folder / "adapters")
        return *common(), "--lora-dir", folder / "adapters"

    def secure() -> tuple[object, ...]:
        certificate = make_certificate(folder)
        return *common(), "--tls-cert", certificate.cert, "--tls-key", certificate.key

    if is_quick:  # a server less
        yield Site([*LOG_ATTACKS, *ATTACKS, *TOGETHER], with_adapters, is_read=False)
    else:
        yield Site([*ATTACKS, *BODIES, *TOGETHER], with_adapters)  # honest ones of as many tokens come first
        yield Site(list(LOG_ATTACKS), common, is_read=False)
    yield Site(list(TLS_ATTACKS), secure)
    yield Site(list(RERANK_ATTACKS), lambda: ("--task", "rerank", "--model", write_reranker(folder / "reranker")), RANK)
    yield Site(list(EMBED_ATTACKS), lambda: ("--model", _encoder(folder / "encoder")), EMBED)


def _encoder(folder: Path) -> Path:
    from fakes.encoders import write_encoder  # imports transformers, which takes seconds

    folder.mkdir()
    return write_encoder(folder, has_head=False)


def write_hostile_adapters(folder: Path) -> None:
    endless = r"(\w|\.|layers|self_attn|[a-z_.0-9])*(\w|\.|[a-z_.0-9])*(\w|\.)*!"
    write_adapter(folder / "patterns", rank_pattern={endless: 8})
    header = json.dumps({"__metadata__": {"x": "a" * (50 << 20)}}).encode()
    (write_adapter(folder / "header") / "adapter_model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header
    )


def attacked(site: Site, chosen: list[str], log: Path, bare_port: int, size: Size) -> Iterator[Seen]:
    arguments = (*COMMON, "--max-receive-seconds", size.receive_s, "--slow-reader-seconds", size.receive_s)
    start = serve if site.is_read else unread
    with start(log, *arguments, *site.arguments()) as served:
        peak = fill(served, bare_port, site)
        for name in chosen:
            print(f"strangers: {name}", file=sys.stderr, flush=True)
            seen = attack(served, bare_port, site, name, size, peak)
            if name in TWINS.values():  # an honest body
                peak = {pid: max(mib, peak.get(pid, 0.0)) for pid, mib in seen.beside.most.items()}
            yield seen
            wait_idle(served, HEADERS)
            time.sleep(size.receive_s if name in LINGERING else 0.1)


@contextmanager
def unread(log: Path, *arguments: object) -> Iterator[Served]:
    """A server whose log is a pipe that is not read any more once it is ready."""
    command, environment = chairlift_command("serve", "--port", "0", *arguments)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        text = ""
        while "ready in " not in text:
            text += os.read(process.stdout.fileno(), 65536).decode()
        log.write_text(text)
        found = re.search(r"starting .* on (http://\S+)", text)
        assert found is not None, text
        try:
            yield Served(process, log, found[1], 0.0)
        finally:
            process.terminate()
            process.communicate()


def fill(served: Served, bare_port: int, site: Site) -> dict[int, float]:
    """Has the server do what honest clients ask for: the most that it takes then."""
    warming = WARMING if site.innocent == WORK else [site.innocent]
    with client_of(served.url) as client, beside(served, bare_port) as found:
        for path, body in warming:
            client.post(path, json=body)
            wait_idle(served, HEADERS)
    return found.most


def client_of(url: str) -> httpx.Client:
    """From an address of its own."""
    transport = httpx.HTTPTransport(local_address="127.0.0.8", verify=False)
    return httpx.Client(base_url=url, headers=HEADERS, timeout=10 * PATIENCE_S, transport=transport)


def attack(served: Served, bare_port: int, site: Site, name: str, size: Size, peak: dict[int, float]) -> Seen:
    named = names(served)
    path, body = site.innocent
    data = json.dumps(body).encode()
    head = "".join(f"{header}: {value}\r\n" for header, value in HEADERS.items())
    request = f"POST {path} HTTP/1.1\r\n{head}Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
    command = [sys.executable, str(Path(__file__).with_name("attacks.py")), name, served.url, OTHER, *map(str, size)]
    with beside(served, bare_port, request, peak) as found:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20 * PATIENCE_S)
        time.sleep(0.1)
    if run.returncode:
        return Seen(name, "", 0.0, found, [f"the attack itself failed: {run.stderr[-2000:]}"])
    told = json.loads(run.stdout)
    wrong: list[str] = [*told["wrong"], *(f"an innocent client got {each}" for each in found.failed)]
    if names(served) != named:
        return Seen(name, "", 0.0, found, [*wrong, f"a process died: {served.output[-2000:]}"])
    pid, grown_mib = found.grown
    most_mib = MAX_GROWTH_MIB + GROWTH_PER_BYTE * LARGEST_MIB * (name in LARGE)
    if grown_mib > most_mib and name not in TWINS.values():
        wrong.append(f"{named[pid]} grew by {grown_mib:.0f} to {found.most[pid]:.0f} MiB")
    outcomes = ", ".join(f"{number} {what}" for what, number in sorted(told["outcomes"].items()))
    return Seen(name, outcomes, grown_mib, found, wrong)


def report(seen: list[Seen], has_limits: bool) -> int:
    """Waits of work are judged where a twin tells how long they may be."""
    wrong = [f"{each.attack}: {what}" for each in seen for what in each.wrong]
    by_name = {each.attack: each.beside for each in seen}
    print("| attack | what came of it | most that a process grew, MiB | slowest health, ms | slowest request, ms "
          "| beside an honest body | of |")  # fmt: skip
    print("|---|---|---:|---:|---:|---:|---:|")
    for each in seen:
        found, twin = each.beside, by_name.get(TWINS.get(each.attack, ""))
        if each.attack in TWINS.values():
            continue
        if found.probe_s > (MAX_PROBE_S if has_limits else FROZEN_S):
            wrong.append(f"{each.attack}: a look at the server's health took {found.probe_s:.2f} s")
        if has_limits and twin is not None and found.work_s > 2 * twin.work_s + MAX_LONGER_S:
            wrong.append(f"{each.attack}: an innocent request took {found.work_s:.2f} s, not {twin.work_s:.2f}")
        print(
            f"| {each.attack} | {each.outcomes} | {each.grown_mib:.1f} | {found.probe_s * 1000:.0f} "
            f"| {found.work_s * 1000:.0f} | {'' if twin is None else f'{twin.work_s * 1000:.0f}'} | {len(found.work)} |"
        )
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
