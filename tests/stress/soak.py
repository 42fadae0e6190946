"""A long run of mixed traffic: memory, open files and blocks stay what they are.

    PYTHONPATH=tests python tests/stress/soak.py [--minutes 30] [--clients 12] [--busy 0.5] [--seed 0] [--out FILE.json]

A server with two front ends is kept busy about half of the time. Each half minute its processes are looked at; each
five minutes (a sixth of a shorter run) the traffic rests, and then every block must be free or cached, by the counts
and by the map of the live page alike. Memory is resident memory summed over all processes, pages that they share
counted by each. Prints a table in Markdown; exit code 1 when after the warm-up (the first rest) memory grew by 2 % or
more (median of the last fifth of the looks against that of the first), any process has more files open at the last rest
than at the first, a block is missing, a process was replaced, or a request did not end as it should.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from fakes.served import Served, serve
from stress.client import names, processes
from stress.traffic import FINE, Traffic

MAX_GROWTH = 0.02
LOOK_S = 30.0
REST_S = 300.0
SERVER = ("--frontends", 2, "--max-running", 8, "--num-blocks", 160, "--max-model-len", 1024)


@dataclass
class Look:
    """At the server's processes, by their ids; `blocks` are by state, of one moment."""

    at_s: float
    is_rest: bool
    busy: float
    rss_mib: dict[int, float] = field(default_factory=dict)
    anonymous_mib: dict[int, float] = field(default_factory=dict)
    files: dict[int, int] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)

    @property
    def total_mib(self) -> float:
        return sum(self.rss_mib.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="Keep a server busy and look for leaks.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--busy", type=float, default=0.5, help="share of the time in which the engine computes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="default: the embedded one")
    parser.add_argument("--out", type=Path, help="where all looks are written as JSON, after each")
    options = parser.parse_args()
    arguments = [*SERVER, *(["--model", options.model] if options.model else [])]
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder) / "log", *arguments) as served:
        soak = Soak(served, options)
        asyncio.run(soak.run())
    return soak.report()


class Soak:
    def __init__(self, served: Served, options: argparse.Namespace) -> None:
        self._served, self._options = served, options
        self._began = time.monotonic()
        self._names = names(served)
        self._looks: list[Look] = []
        self._wrong: list[str] = []
        self._counted = self._began, 0.0  # when the engine's time was last read, and what it was
        model = httpx.get(f"{served.url}/v1/models", timeout=30).json()["data"][0]["id"]
        self._traffic = Traffic(served.url, model, options.clients, options.seed)

    async def run(self) -> None:
        length_s = self._options.minutes * 60
        look_s, rest_s = min(LOOK_S, length_s / 60), min(REST_S, length_s / 6)
        ends, rests = self._began + length_s, self._began + rest_s
        self._traffic.begin()
        while time.monotonic() < ends:
            await asyncio.sleep(min(look_s, max(0.0, ends - time.monotonic())))
            await self._look(is_rest=False)
            if time.monotonic() >= min(rests, ends):
                rests += rest_s
                await self._traffic.rest()
                await asyncio.sleep(1.5)  # connections that were refused linger for a second
                await self._look(is_rest=True)
                if time.monotonic() < ends:
                    self._traffic.begin()

    async def _look(self, is_rest: bool) -> None:
        async with httpx.AsyncClient(base_url=self._served.url, timeout=60) as http:
            metrics = _series((await http.get("/metrics")).text)
            whole = await _whole(http)
        if is_rest:
            await asyncio.sleep(0.5)  # for the server to close the connections of this look
        now = time.monotonic()
        compute_s = sum(value for name, value in metrics.items() if name.startswith("chairlift_step_seconds_sum"))
        busy = (compute_s - self._counted[1]) / (now - self._counted[0])
        self._counted = now, compute_s
        if not is_rest:
            self._traffic.pace(busy, self._options.busy)
        blocks = _counted(metrics) if is_rest else _ticked(whole)
        look = Look(now - self._began, is_rest, busy, blocks=blocks)
        for process in processes(self._served.process.pid):
            with suppress(psutil.NoSuchProcess):
                memory = process.memory_info()
                look.rss_mib[process.pid] = memory.rss / 2**20
                look.anonymous_mib[process.pid] = (memory.rss - memory.shared) / 2**20
                look.files[process.pid], look.threads[process.pid] = process.num_fds(), process.num_threads()
        self._looks.append(look)
        self._check(look, metrics, whole)
        self._tell(look)

    def _check(self, look: Look, metrics: dict[str, float], whole: dict[str, Any]) -> None:
        at = f"after {look.at_s:.0f} s"
        capacity = metrics["chairlift_kv_capacity_blocks"]
        if sum(look.blocks.values()) != capacity:
            self._wrong.append(f"{at}: {look.blocks} are not {capacity:.0f} blocks")
        if look.is_rest:
            shown = {state: whole["blocks"][state].count("9") for state in ("cached", "held")}
            if look.blocks["held"] or shown != {state: look.blocks[state] for state in shown}:
                self._wrong.append(f"{at}, at rest: blocks {look.blocks}, on the map {shown}")
            left = [f"requests_{state}" for state in ("running", "waiting", "preempted")]
            self._wrong += [f"{at}, at rest: {name} is not 0" for name in left if metrics[f"chairlift_{name}"]]
        if look.rss_mib.keys() != self._looks[0].rss_mib.keys():
            self._wrong.append(f"{at}: a process was replaced")

    def _tell(self, look: Look) -> None:
        files = " ".join(f"{name} {look.files.get(pid)}" for pid, name in self._names.items())
        asked = sum(self._traffic.outcomes.values())
        print(
            f"{look.at_s:5.0f} s{' at rest' if look.is_rest else '':8} {look.total_mib:7.1f} MiB, files: {files}, "
            f"threads {sum(look.threads.values())}, busy {look.busy:.0%}, {asked} requests, blocks {look.blocks}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        if self._options.out:
            self._options.out.write_text(json.dumps(self._written(), indent=1))

    def _written(self) -> dict[str, Any]:
        outcomes = {f"{kind}: {outcome}": count for (kind, outcome), count in sorted(self._traffic.outcomes.items())}
        return {
            "minutes": self._options.minutes, "processes": self._names, "outcomes": outcomes, "wrong": self._wrong,
            "surprises": self._traffic.surprises[:50], "looks": [asdict(look) for look in self._looks],
        }  # fmt: skip

    def report(self) -> int:
        rests = [look for look in self._looks if look.is_rest]
        warm = [look for look in self._looks if not look.is_rest and look.at_s > rests[0].at_s]
        fifth = max(1, len(warm) // 5)
        first, last = warm[:fifth], warm[-fifth:]
        growth = _median(last) / _median(first) - 1
        wrong = [*self._wrong]
        wrong += [f"memory grew by {growth:.2%}"] if growth >= MAX_GROWTH else []
        rows = {
            "minutes": f"{self._options.minutes:g}, of them to warm up {rests[0].at_s / 60:.1f}",
            "busy, median": f"{statistics.median(look.busy for look in warm):.0%}",
            "looks at blocks, at rest": f"{len(self._looks)}, {len(rests)}",
            "resident memory, MiB": f"{_median(first):.1f} to {_median(last):.1f} ({growth:+.2%})",
        }
        for pid, name in self._names.items():
            begun, ended = (_median(looks, pid) for looks in (first, last))
            files = [look.files.get(pid, 0) for look in (rests[0], rests[-1])]
            threads = [look.threads.get(pid, 0) for look in (rests[0], rests[-1])]
            rows[name] = (
                f"{begun:.1f} to {ended:.1f} MiB, {files[0]} to {files[1]} files, {threads[0]} to {threads[1]} threads"
            )
            wrong += [f"{name} has {files[1] - files[0]} more files open"] if files[1] > files[0] else []
        outcomes = self._traffic.outcomes
        for kind in sorted({kind for kind, _ in outcomes}):
            rows[f"requests: {kind}"] = ", ".join(f"{o} {n}" for (k, o), n in sorted(outcomes.items()) if k == kind)
        bad = sum(count for (_, outcome), count in outcomes.items() if outcome not in FINE)
        wrong += [f"{bad} requests did not end as they should"] if bad else []
        print("| soak | |\n|---|---:|")
        for name, value in rows.items():
            print(f"| {name} | {value} |")
        for line in [*wrong[:20], *self._traffic.surprises[:10]]:
            print(f"WRONG: {line}", file=sys.stderr)
        return 1 if wrong else 0


def _series(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def _counted(metrics: dict[str, float]) -> dict[str, int]:
    return {state: round(metrics[f'chairlift_kv_blocks{{state="{state}"}}']) for state in ("free", "cached", "held")}


def _ticked(whole: dict[str, Any]) -> dict[str, int]:
    """The counts of one moment in the last second; those of the metrics may change while they are read."""
    tick = dict(zip(whole["columns"], whole["ticks"][-1], strict=True))
    return {"free": tick["blank"], "cached": tick["cached"], "held": tick["held"]}


async def _whole(http: httpx.AsyncClient) -> dict[str, Any]:
    """What a page that is opened now is shown first."""
    async with http.stream("GET", "/live") as answer:
        event = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: ") and event == "whole":
                whole: dict[str, Any] = json.loads(line[6:])
                return whole
    raise LookupError("the live page shows nothing")


def _median(looks: list[Look], pid: int | None = None) -> float:
    return statistics.median(look.total_mib if pid is None else look.rss_mib.get(pid, 0.0) for look in looks)


if __name__ == "__main__":
    sys.exit(main())
