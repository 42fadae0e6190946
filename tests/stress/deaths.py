"""Kills the processes of a server under streams, alone and in pairs, or tells all of them at once to stop.

    PYTHONPATH=tests python tests/stress/deaths.py [--quick] [--streams 32] [--model MODEL]

Each case has a server of its own. Where the parent was killed, every stream must be told so or, if a front end was
killed too, may break; all processes must be gone and the port free within two seconds. Where it was not, the server
must serve again, and streams of a front end that lived must be whole. Told to stop, streams end whole, nothing is
started again and the exit code is 0. Prints a table in Markdown; exit code 1 when anything was otherwise. `--quick`:
two cases under 8 streams.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from chairlift.core.errors import InvalidConfig
from chairlift.server.sockets.listen import listen
from fakes.processes import is_alive
from fakes.served import Served, serve
from stress.client import Outcome, ask, metric, processes

_FREE_S = 2.0
_PATIENCE_S = 120.0


class Case(NamedTuple):
    num_front_ends: int
    killed: tuple[str, ...] = ()
    told: signal.Signals | None = None  # to stop, all processes at once

    def __str__(self) -> str:
        what = f"{self.told.name} to all" if self.told else f"{' and '.join(self.killed)} killed"
        return f"{what}, {self.num_front_ends} front end{'s' if self.num_front_ends > 1 else ''}"


_KILLS = (("parent",), ("parent", "engine"), ("parent", "front end"), ("engine", "front end"))
CASES = (
    *(Case(number, names) for names in _KILLS for number in (1, 2)),
    *(Case(2, told=number) for number in (signal.SIGTERM, signal.SIGINT)),
)
QUICK = (Case(1, ("parent", "engine")), Case(2, told=signal.SIGTERM))


class Found(NamedTuple):
    streams: Counter[str]
    over_s: float  # until everything was as it should be
    wrong: list[str]


async def run(case: Case, served: Served, num_streams: int) -> Found:
    children = processes(served.process.pid)[1:]
    num_tokens = 200 if case.told or "parent" not in case.killed else 8000
    streams = [asyncio.ensure_future(ask(served.url, body(i, num_tokens), _PATIENCE_S)) for i in range(num_streams)]
    while metric(served.url, "chairlift_generated_tokens_total") < 2 * num_streams:
        await asyncio.sleep(0.05)
    began = time.monotonic()
    if case.told:
        os.killpg(served.process.pid, case.told)
    else:
        served.kill(*case.killed)
    is_over = is_serving_again if not case.told and "parent" not in case.killed else is_gone
    wrong = []
    while not is_over(served, children):
        if time.monotonic() - began > _PATIENCE_S:
            wrong.append("it did not come to an end")
            break
        await asyncio.sleep(0.02)
    over_s = time.monotonic() - began
    outcomes = Counter(kind(outcome) for outcome in await asyncio.gather(*streams))
    return Found(outcomes, over_s, wrong + judge(case, served, outcomes, over_s))


def body(index: int, num_tokens: int) -> dict[str, Any]:
    return {"prompt": f"Lift {index} goes up the hill", "max_tokens": num_tokens, "ignore_eos": True}


def kind(outcome: Outcome) -> str:
    return "told" if '"error"' in outcome.error else {"answered": "whole", "cut": "broken"}.get(outcome.kind, "lost")


def is_gone(served: Served, children: list[psutil.Process]) -> bool:
    return served.process.poll() is not None and not any(is_alive(child.pid) for child in children) and _is_free(served)


def is_serving_again(served: Served, _: list[psutil.Process]) -> bool:
    return served.output.count("is ready again after") == 2


def judge(case: Case, served: Served, outcomes: Counter[str], over_s: float) -> list[str]:
    may_be = {"whole"} if case.told else {"told"} if "parent" in case.killed else {"whole"}
    may_be |= {"broken", "lost"} if "front end" in case.killed else set()
    wrong = [f"{number} streams were {name}" for name, number in outcomes.items() if name not in may_be]
    if "parent" in case.killed and over_s > _FREE_S:
        wrong.append(f"the port was free after {over_s:.1f} s")
    if case.told and (served.process.returncode != 0 or "again" in served.output):
        wrong.append("it did not just stop")
    return wrong


def _is_free(served: Served) -> bool:
    try:
        listen("127.0.0.1", int(served.url.rpartition(":")[2])).close()
    except InvalidConfig:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the processes of servers.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--model", help="default: the embedded one")
    options = parser.parse_args()
    cases, num_streams = (QUICK, 8) if options.quick else (CASES, options.streams)
    print("| processes killed under streams | whole | told | broken | all over, s |\n|---|---:|---:|---:|---:|")
    is_well = True
    for case in cases:
        arguments = ["--frontends", case.num_front_ends, *(["--model", options.model] if options.model else [])]
        with tempfile.TemporaryDirectory() as folder:
            with serve(Path(folder) / "log", *arguments, is_group=case.told is not None) as served:
                found = asyncio.run(run(case, served, num_streams))
            streams = found.streams
            numbers = f"{streams['whole']} | {streams['told']} | {streams['broken'] + streams['lost']}"
            print(f"| {case} | {numbers} | {found.over_s:.1f} |", flush=True)
            for line in found.wrong:
                is_well = False
                print(f"WRONG: {case}: {line}\n{served.output[-2000:]}", file=sys.stderr)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
