"""A server that is told to stop under load: every request that it took finishes, the others are told to go elsewhere.

    PYTHONPATH=tests python tests/stress/drain.py [--quick] [--clients 64] [--rounds 5]

Clients ask again and again, each until it is turned away; at a random moment the server gets SIGTERM. Prints a table in
Markdown; exit code 1 when an answer that had begun was cut, a request that was in flight when the signal came got
neither an answer nor a status, no request was told that the server stops, or the server's exit code was not 0.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.served import Served, serve
from stress.client import Outcome, ask


@dataclass
class Round:
    before: list[Outcome] = field(default_factory=list)  # of requests that were sent before the signal
    after: list[Outcome] = field(default_factory=list)
    drain_s: float = 0.0
    exit_code: int = -1


def main() -> int:
    parser = argparse.ArgumentParser(description="Stop a server under load.")
    parser.add_argument("--quick", action="store_true", help="one round of 24 clients")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", help="default: the embedded one")
    options = parser.parse_args()
    num_rounds, num_clients = (1, 24) if options.quick else (options.rounds, options.clients)
    arguments = ["--frontends", 2, *(["--model", options.model] if options.model else [])]
    rounds = []
    for number in range(num_rounds):
        with tempfile.TemporaryDirectory() as folder, serve(Path(folder) / "log", *arguments) as served:
            rounds.append(asyncio.run(stop_under_load(served, num_clients, random.Random(number))))
    return report(rounds, num_clients)


async def stop_under_load(served: Served, num_clients: int, rng: random.Random) -> Round:
    found = Round()
    stopped: float | None = None

    async def client(rng: random.Random) -> None:
        while True:
            began = time.monotonic()
            outcome = await ask(served.url, body(rng))
            (found.before if stopped is None or began < stopped else found.after).append(outcome)
            if outcome.status != 200:
                return

    clients = [asyncio.ensure_future(client(random.Random(rng.random()))) for _ in range(num_clients)]
    await asyncio.sleep(2.0 + rng.random() * 2.0)
    stopped = time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    await asyncio.gather(*clients)
    found.exit_code = await asyncio.to_thread(served.process.wait, 60)
    found.drain_s = time.monotonic() - stopped
    return found


def body(rng: random.Random) -> dict[str, Any]:
    return {"prompt": "the lift goes up " * rng.randint(1, 20), "max_tokens": rng.randint(16, 96), "ignore_eos": True}


def report(rounds: list[Round], num_clients: int) -> int:
    before = Counter(outcome.kind for found in rounds for outcome in found.before)
    after = Counter(outcome.kind for found in rounds for outcome in found.after)
    rows = {
        "rounds, clients": f"{len(rounds)}, {num_clients}",
        "sent before SIGTERM: answered in full": before["answered"],
        "sent before SIGTERM: told that the server stops (503)": before["503"],
        "sent before SIGTERM: cut or lost": before["cut"] + before["lost"],
        "sent after SIGTERM: told that the server stops (503)": after["503"],
        "sent after SIGTERM: no connection any more": after["lost"],
        "sent after SIGTERM: cut": after["cut"],
        "until the process had ended, s": ", ".join(f"{found.drain_s:.1f}" for found in rounds),
        "exit codes": ", ".join(str(found.exit_code) for found in rounds),
    }
    print("| stopping under load | |\n|---|---:|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")
    wrong = []
    wrong += ["requests were cut or lost"] if before["cut"] + before["lost"] + after["cut"] else []
    wrong += ["no request was told that the server stops"] if not before["503"] + after["503"] else []
    wrong += ["there were other answers"] if set(before | after) - {"answered", "503", "cut", "lost"} else []
    wrong += ["the exit code was not 0"] if any(found.exit_code for found in rounds) else []
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    for outcome in [o for found in rounds for o in found.before if o.kind in ("cut", "lost")][:5]:
        print(f"  {outcome}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
