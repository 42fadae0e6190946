"""Ten times the load that a server can serve: the answered stay within the SLO, the others are told so at once.

    PYTHONPATH=tests python tests/stress/overload.py [--quick] [--seconds 60] [--factor 10] [--slo 5]

First measures what the server serves in a closed loop, then sets the `max_waiting` that suits the SLO (a third of what
is served in that time), then offers `factor` times as much, in an open loop with a connection for each request. Memory
is what each process has written to, looked at twice a second: the most in the minute against the most in an overload of
an eighth of it before, by when every block of the KV cache has been used. Prints a table in Markdown. Exit code 1 when
a request was lost or cut, an answered one began too late, a 429 took 50 ms or more (99th percentile), or memory grew by
more than 2 % (and 2 MiB) in any process. How late this script itself wakes up is in the table too: where that
is as late, the machine was too busy to say anything about 429.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fakes.served import Served, serve
from stress.client import Outcome, ask, fill, names, percentile, written_mib

MAX_429_S = 0.05
MAX_GROWTH = 0.02
SPARE_MIB = 2.0  # for a burst of connections, in a process that has little
LOOK_S = 0.5  # between two looks at memory
CONCURRENCY = 32  # of the closed loop

Memory = dict[str, float]  # MiB that each process has written to, at most


def main() -> int:
    parser = argparse.ArgumentParser(description="Offer a server more than it can serve.")
    parser.add_argument("--quick", action="store_true", help="6 s of load")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--factor", type=float, default=10.0)
    parser.add_argument("--slo", type=float, default=5.0, help="seconds to the first token")
    parser.add_argument("--frontends", type=int, default=1)
    parser.add_argument("--model", help="default: the embedded one")
    options = parser.parse_args()
    seconds = 6.0 if options.quick else options.seconds
    arguments = ["--frontends", options.frontends, *(["--model", options.model] if options.model else [])]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.touch()
        # So small a cache is used to the last block soon: a block costs memory from its first use on.
        with serve(Path(folder) / "log", "--kv-memory", "64MiB", "--config", config, *arguments) as served:
            with suppress(psutil.AccessDenied):
                psutil.Process().nice(-10)  # else this waits for the engine where cores are few
            capacity = asyncio.run(measure(served.url, min(20.0, seconds)))
            asyncio.run(fill(served.url))
            max_waiting = max(1, int(capacity * options.slo / 3))
            config.write_text(f"max_waiting: {max_waiting}\n")
            served.process.send_signal(signal.SIGHUP)
            rate = capacity * options.factor
            *_, before = asyncio.run(offer(served, rate, max(1.5, seconds / 8)))
            outcomes, delays, after = asyncio.run(offer(served, rate, seconds))
    return report(outcomes, delays, seconds, capacity, max_waiting, options.slo, before, after)


def body(rng: random.Random) -> dict[str, Any]:
    words = " ".join(rng.choice(("the", "lift", "goes", "up", "and", "down", "again")) for _ in range(40))
    return {"prompt": words, "max_tokens": rng.randint(8, 32), "ignore_eos": True}


async def measure(url: str, seconds: float) -> float:
    """Requests a second that are served when there are always some."""
    rng, ends = random.Random(1), time.monotonic() + seconds
    num_done = 0

    async def loop() -> None:
        nonlocal num_done
        while time.monotonic() < ends:
            outcome = await ask(url, body(rng))
            num_done += outcome.is_full

    began = time.monotonic()
    await asyncio.gather(*(loop() for _ in range(CONCURRENCY)))
    return num_done / (time.monotonic() - began)


async def offer(served: Served, rate: float, seconds: float) -> tuple[list[Outcome], list[float], Memory]:
    """Requests at random times, whether or not the ones before are done; how late each was sent; and what memory the
    server had meanwhile."""
    memory: Memory = {}
    looking = asyncio.ensure_future(look(names(served), memory))
    rng, began = random.Random(2), time.monotonic()
    at, in_flight, delays = 0.0, [], []
    while (at := at + rng.expovariate(rate)) < seconds:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        delays.append(time.monotonic() - began - at)
        in_flight.append(asyncio.ensure_future(ask(served.url, body(rng))))
    outcomes = await asyncio.gather(*in_flight)
    looking.cancel()
    return outcomes, delays, memory


async def look(named: dict[int, str], most: Memory) -> None:
    while True:
        for pid, name in named.items():
            most[name] = max(most.get(name, 0.0), written_mib(pid))
        await asyncio.sleep(LOOK_S)


def report(
    outcomes: list[Outcome],
    delays: list[float],
    seconds: float,
    capacity: float,
    max_waiting: int,
    slo: float,
    before: Memory,
    after: Memory,
) -> int:
    kinds = Counter(outcome.kind for outcome in outcomes)
    firsts = [outcome.first_s for outcome in outcomes if outcome.kind == "answered"]
    refusals = [outcome.status_s for outcome in outcomes if outcome.status == 429]
    num_late = sum(first > slo for first in firsts)
    others = {kind: count for kind, count in kinds.items() if kind not in ("answered", "429")}
    rows = {
        "served without overload, requests/s": f"{capacity:.1f}",
        "offered, requests/s": f"{len(outcomes) / seconds:.1f} for {seconds:.0f} s",
        "`max_waiting`": str(max_waiting),
        "sent": str(len(outcomes)),
        "answered in full": f"{kinds['answered']} ({kinds['answered'] / seconds:.1f} a second)",
        "429": str(kinds["429"]),
        "anything else": str(others or 0),
        "TTFT of the answered, p50 / p99 / max, s": " / ".join(f"{percentile(firsts, q):.2f}" for q in (0.5, 0.99, 1)),
        f"answered, but begun after {slo:g} s": str(num_late),
        "429 after, p50 / p99 / max, ms": " / ".join(f"{percentile(refusals, q) * 1e3:.1f}" for q in (0.5, 0.99, 1)),
        f"429 after {MAX_429_S * 1e3:.0f} ms or more": str(sum(took >= MAX_429_S for took in refusals)),
        "this script late by, p50 / p99 / max, ms": " / ".join(
            f"{percentile(delays, q) * 1e3:.1f}" for q in (0.5, 0.99, 1)
        ),
    }
    before, after = ({"all processes": sum(memory.values())} | memory for memory in (before, after))
    growth = {name: after[name] / before[name] - 1 for name in before}
    for name in before:
        rows[f"memory of {name}, MiB"] = f"{before[name]:.1f} to {after[name]:.1f} ({growth[name]:+.1%})"
    print("| overload | |\n|---|---:|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")
    wrong = []
    wrong += ["requests were lost or cut"] if others else []
    wrong += ["answered ones began too late"] if num_late else []
    wrong += ["nothing was refused: the load was no overload"] if not refusals else []
    if percentile(refusals, 0.99) >= MAX_429_S:
        if percentile(delays, 0.99) < MAX_429_S / 2:
            wrong.append("429 came too late")
        else:
            print("UNCLEAR: this machine is too busy to tell how late 429 came", file=sys.stderr)
    wrong += [
        f"memory of {name} grew"
        for name in growth
        if after[name] > before[name] + max(SPARE_MIB, before[name] * MAX_GROWTH)
    ]
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    for outcome in [o for o in outcomes if o.kind not in ("answered", "429")][:5]:
        print(f"  {outcome}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
