"""Measures the front end: processor time per streamed token and per request, of the front end alone.

    python benchmarks/front_end/run.py [servers] [front-ends] [parts] [--against SRC] [--turns 3] [--step-ms 20]

servers     the shipped front end and alternatives (`servers.py`), and with `--against` the shipped one of another
            checkout's `src`; in turns, so that all see the same machine
front-ends  one, two and four of the shipped ones
parts       single operations: JSON, text, and the engine's side (`parts.py`)

The engine has no model (`engine.py`) and the clients only count (`client.py`); each is a process of its own. A turn is
1,500 requests at once, of 1 token for the cost of a request, then of many for the cost of a token; figures are the
medians of the turns. Granian and orjson are left out where they are not installed.
"""

import argparse
import importlib.util
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from chairlift.server.sockets.listen import listen

_HERE = Path(__file__).parent
_KINDS = ("shipped", "asgi", "direct", "raw", "raw-close", "raw-struct", "raw-orjson", "granian", "granian-rsgi")
_NEEDS = {"raw-orjson": "orjson", "granian": "granian", "granian-rsgi": "granian"}


@dataclass(frozen=True)
class Turn:
    request_us: float
    token_us: float
    rate: float  # tokens per second at the clients
    busiest: float  # the busiest front end's share of the processor time


@dataclass(frozen=True)
class Load:
    requests: int
    tokens: int
    running: int
    step_ms: float
    prompts: int = 1  # per request, all in one stream

    @property
    def samples(self) -> int:
        return self.requests * self.prompts


def measure(kind: str, load: Load, count: int = 1, source: Path | None = None) -> Turn:
    env = dict(os.environ)
    if source is not None:
        env["PYTHONPATH"] = f"{source}:{env.get('PYTHONPATH', '')}"
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
        address = f"ipc://{folder}/engine-0"
        running = ["--running", str(load.running), "--step-ms", str(load.step_ms)]
        engine = _start(stack, env, ["engine.py", address, *running])
        listener = stack.enter_context(listen("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
        front_ends = []
        for index in range(count):
            command = ["servers.py", kind, address, port]
            if kind == "shipped":
                command += ["--fd", str(listener.fileno()), "--index", str(index)]
            else:
                listener.close()
            front_ends.append(_start(stack, env, command, listener.fileno()))
        for front_end in front_ends:
            _await(front_end, engine)
        return _turn(front_ends, port, load)


def _turn(front_ends: list[subprocess.Popen[bytes]], port: str, load: Load) -> Turn:
    processes = [psutil.Process(front_end.pid) for front_end in front_ends]

    def run(tokens: int) -> tuple[list[float], dict[str, float]]:
        before = [sum(process.cpu_times()[:2]) for process in processes]
        sizes = ["--requests", str(load.requests), "--tokens", str(tokens), "--prompts", str(load.prompts)]
        told = subprocess.check_output([sys.executable, _HERE / "client.py", port, *sizes])
        spent = [sum(process.cpu_times()[:2]) - b for process, b in zip(processes, before, strict=True)]
        heard = json.loads(told)
        assert heard["chunks"] >= 0.95 * load.samples * tokens, "chunks are missing"
        return spent, heard

    run(2)  # warm-up
    short, _ = run(1)
    long, heard = run(load.tokens)
    num_more = load.samples * (load.tokens - 1)
    return Turn(
        request_us=sum(short) / load.requests * 1e6,
        token_us=(sum(long) - sum(short)) / num_more * 1e6,
        rate=heard["chunks"] / heard["seconds"],
        busiest=max(long) / sum(long),
    )


def _start(stack: ExitStack, env: dict[str, str], command: list[str], fd: int = -1) -> subprocess.Popen[bytes]:
    lent = (fd,) if fd >= 0 else ()
    process = subprocess.Popen(
        [sys.executable, _HERE / command[0], *command[1:]], env=env, stdout=subprocess.PIPE, pass_fds=lent
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _await(front_end: subprocess.Popen[bytes], engine: subprocess.Popen[bytes]) -> None:
    """Until the front end says that it listens; it does not while there is no engine."""
    while not select.select([front_end.stdout], [], [], 0.5)[0]:
        if engine.poll() is not None:
            raise RuntimeError("the engine without a model ended; its last words are above")


def compare_servers(load: Load, turns: int, against: Path | None, kinds: list[str]) -> None:
    rows: list[tuple[str, Path | None]] = [(kind, None) for kind in kinds]
    if against is not None:
        rows.insert(1, ("shipped", against))
    taken: dict[tuple[str, Path | None], list[Turn]] = {row: [] for row in rows}
    for _ in range(turns):
        for row in rows:
            taken[row].append(measure(row[0], load, source=row[1]))
    base = taken[rows[0]]
    print(
        f"\n{'front end':24} {'us a token':>10} {'(from to)':>12} {'ratio':>6} {'us a request':>13} {'ratio':>6} "
        f"{'tokens/s':>9}"
    )
    for row, made in taken.items():
        name = f"{row[0]}, before" if row[1] is not None else row[0]
        token, request = median(made, "token_us"), median(made, "request_us")
        times = [turn.token_us for turn in made]
        span = f"({min(times):.1f} {max(times):.1f})"
        ratios = [_ratio(made, base, field) for field in ("token_us", "request_us")]
        print(
            f"{name:24} {token:10.1f} {span:>12} {ratios[0]:6.2f} {request:13.0f} {ratios[1]:6.2f} "
            f"{median(made, 'rate'):9.0f}",
            flush=True,
        )


def _ratio(made: list[Turn], base: list[Turn], field: str) -> float:
    """The median over the turns: both of a turn saw the same machine."""
    return statistics.median(getattr(m, field) / getattr(b, field) for m, b in zip(made, base, strict=True))


def median(made: list[Turn], field: str) -> float:
    return statistics.median(getattr(turn, field) for turn in made)


def compare_counts(load: Load, turns: int) -> None:
    taken: dict[int, list[Turn]] = {count: [] for count in (1, 2, 4)}
    for _ in range(turns):
        for count, made in taken.items():
            made.append(measure("shipped", load, count))
    print(f"\n{'front ends':>10} {'us a token':>10} {'us a request':>13} {'tokens/s':>9} {'busiest':>8}")
    for count, made in taken.items():
        token, request = median(made, "token_us"), median(made, "request_us")
        rate, busiest = median(made, "rate"), median(made, "busiest")
        print(f"{count:10} {token:10.1f} {request:13.0f} {rate:9.0f} {busiest:8.0%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", choices=("servers", "front-ends", "parts", []))
    parser.add_argument("--against", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--tokens", type=int, default=66)
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--prompts", type=int, default=1, help="prompts per request, all in one stream; only `shipped`")
    parser.add_argument("--kinds", nargs="*", default=_KINDS)
    arguments = parser.parse_args()
    load = Load(arguments.requests, arguments.tokens, arguments.running, arguments.step_ms, arguments.prompts)
    kinds = [k for k in arguments.kinds if k not in _NEEDS or importlib.util.find_spec(_NEEDS[k])]
    what = arguments.what or ["servers", "front-ends", "parts"]
    if "servers" in what:
        compare_servers(load, arguments.turns, arguments.against, kinds)
    if "front-ends" in what:
        compare_counts(load, arguments.turns)
    if "parts" in what:
        subprocess.check_call([sys.executable, _HERE / "parts.py"])


if __name__ == "__main__":
    main()
