"""One model served over HTTP by one engine after the other, on one GPU, and what a load's clients see.

    python benchmarks/gpu/served.py --model DIR --rows 1,64,contest [--options "--replicas 2"]
        [--lora ADAPTER_DIR --adapters 1,8,64]
        [--row "chat: --workload FILE --arrivals poisson:rate=21"]
        [--peer "vllm: PYTHONPATH=SITE vllm serve DIR --load-format dummy --port {port}"] [--peer "vllm: http://..."]

`--rows`: a number is so many streams of 128 + 256 tokens, `contest` the contest's requests, all at once; `--row` adds a
load, in `chairlift bench`'s options. chairlift serves random weights with four front ends; `--options` replaces it by
one with these options, once for each time it is given. A peer is a program with its arguments, variables of its
environment before it, or the address of a server that runs. With `--adapters` each row runs for the base, and then over
so many adapters, a0, a1, ..., all of them `--lora`'s, of rank 16 at most, which peers must know by these names
(`--lora-modules a0=ADAPTER_DIR ...`).

Each engine is warmed up by each row, with other prompts, before it is timed, and its processes are gone before the next
starts. One line of JSON a row, then a table in which the first peer is what the others are compared with.
"""

import argparse
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

OWN = "--load-format dummy --dtype bfloat16 --max-model-len 4096 --frontends 4 --quiet"
READY_S = 400.0
MANY = 10**6
STREAM = "prompt=128,output=256"


class Engine(NamedTuple):
    name: str
    command: str  # with {port}; or the address of a server that runs


class Row(NamedTuple):
    name: str
    most_adapters: int
    load: list[str]
    warm_up: list[str]


def peer_of(given: str, parser: argparse.ArgumentParser) -> Engine:
    name, colon, command = given.partition(":")
    if not colon:
        parser.error(f"--peer must be NAME: COMMAND or NAME: URL, got {given!r}")
    return Engine(name.strip(), command.strip())


def rows_of(names: str, more: list[str]) -> list[Row]:
    rows = []
    for name in filter(None, names.split(",")):
        if name == "contest":
            load = ["--workload", "contest", "--arrivals", "none"]
            rows.append(Row(name, MANY, load, load))
        elif not name.isdigit():
            sys.exit(f"--rows must be numbers of streams and `contest`, got {name!r}")
        else:
            load = ["--workload", f"lengths:{STREAM},count={name}", "--arrivals", "none"]
            rows.append(Row(f"{name} streams", int(name), load, load))
    for given in more:
        name, _, options = given.partition(":")
        load = shlex.split(options)
        rows.append(Row(name.strip(), MANY, load, [*load, "--limit", "40"]))
    return rows


@contextmanager
def running(engine: Engine, log: Path) -> Iterator[str]:
    """The server's address, once it answers."""
    if engine.command.startswith("http"):
        yield engine.command
        return
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = engine.command.replace("{port}", str(port))
    began = time.monotonic()
    with log.open("w") as file:
        server = subprocess.Popen(
            ["bash", "-c", f"exec env {command}"], stdout=file, stderr=file, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        while not answers(url):
            if server.poll() is not None or time.monotonic() - began > READY_S:
                sys.exit(f"{engine.name} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        say(engine=engine.name, ready_s=round(time.monotonic() - began, 1))
        yield url
    finally:
        stop(server)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def stop(server: "subprocess.Popen[bytes]") -> None:
    """The session that it is the first of, as its processes may outlive it."""
    family = [process for process in psutil.process_iter() if _session(process) == server.pid]
    server.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=20)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=20)
    server.wait()


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except OSError:
        return 0  # it has ended


def measured(url: str, load: list[str], adapters: list[str], seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "chairlift", "bench", "--url", url, "--json", "--clients", "4", *load]
    command += ["--seed", str(seed)]
    command += ["--adapters", *adapters] if adapters else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        say(url=url, load=load, failed=done.stderr[-500:])
    return dict(json.loads(done.stdout)["figures"]) if done.stdout else {}


def figures_of(found: dict[str, Any]) -> dict[str, Any]:
    if not found:
        return {}
    shares = ("p50", "p90", "p99")
    return {
        "s": round(found["total_s"], 2),
        "not_full": found["requests"] - found["full"],
        "cached_tokens": found["cached_tokens"],
        "ttft_ms": [round(1e3 * found["ttft_s"][share], 1) for share in shares],
        "tpot_ms": [round(1e3 * found["tpot_s"][share], 2) for share in shares],
    }


def say(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", default="1,64,contest")
    parser.add_argument("--row", action="append", default=[], metavar="NAME: OPTIONS")
    parser.add_argument("--options", action="append", default=[], help="of chairlift")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME: COMMAND|URL")
    parser.add_argument("--lora", metavar="DIR")
    parser.add_argument("--adapters", default="", metavar="N,...")
    parser.add_argument("--without-own", action="store_true", help="the peers alone")
    parser.add_argument("--logs", type=Path, default=Path("build/served"), help="folder of the servers' output")
    args = parser.parse_args()
    args.logs.mkdir(parents=True, exist_ok=True)
    own = f"{shlex.quote(sys.executable)} -m chairlift serve {shlex.quote(args.model)} {OWN} --port {{port}}"
    if bool(args.adapters) != bool(args.lora):
        parser.error("--adapters and --lora belong together")
    counts = [int(count) for count in args.adapters.split(",") if count]
    names = [f"a{number}" for number in range(max(counts, default=0))]
    if names:
        own += f" --max-loras {len(names)} --max-lora-rank 16 " + " ".join(
            f"--lora {name}={shlex.quote(args.lora)}" for name in names
        )
    engines = [peer_of(peer, parser) for peer in args.peer]
    if not args.without_own:
        engines += [Engine(f"chairlift {more}".strip(), f"{own} {more}") for more in args.options or [""]]
    if len({engine.name for engine in engines}) < len(engines):
        parser.error("two engines have the same name, or --options is given twice alike")
    rows = rows_of(args.rows, args.row)
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for number, engine in enumerate(engines):
        seed = 0
        with running(engine, args.logs / f"{number}.log") as url:
            for row in rows:
                for count in (0, *(count for count in counts if count <= row.most_adapters)):
                    seed += 2
                    measured(url, row.warm_up, names[:count], seed)
                    found = figures_of(measured(url, row.load, names[:count], seed + 1))
                    label = f"{row.name}, {count} adapters" if names else row.name
                    say(engine=engine.name, row=label, **found)
                    table.setdefault(label, {})[engine.name] = found
    print_table([engine.name for engine in engines], table)


def print_table(engines: list[str], table: dict[str, dict[str, dict[str, Any]]]) -> None:
    print("\n| load | " + " | ".join(f"{name}: s, TTFT p50, TPOT p50 ms" for name in engines) + " |")
    print("|---|" + "---|" * len(engines))
    for label, by_engine in table.items():
        first = by_engine.get(engines[0], {})
        cells = []
        for name in engines:
            found = by_engine.get(name, {})
            if not found:
                cells.append("failed")
                continue
            cells.append(f"{found['s']}, {found['ttft_ms'][0]}, {found['tpot_ms'][0]}{ratios(first, found)}")
            if found["not_full"]:
                cells[-1] += f", {found['not_full']} not in full"
        print(f"| {label} | " + " | ".join(cells) + " |")


def ratios(first: dict[str, Any], found: dict[str, Any]) -> str:
    pairs = [(first["s"], found["s"]), (first["tpot_ms"][0], found["tpot_ms"][0])] if first else []
    if found is first or not all(old and new for old, new in pairs):  # one token has no time between tokens
        return ""
    return f" ({', '.join(f'{old / new:.2f}x' for old, new in pairs)})"


if __name__ == "__main__":
    main()
