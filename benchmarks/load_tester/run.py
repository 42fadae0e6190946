"""Measures the load tester itself: the chunks per second it can read, and how late it timestamps them.

    python benchmarks/load_tester/run.py [--streams 1500] [--rates 5000,20000] [--clients N] [--servers N] [--others]

Against servers that only write (`server.py`), all streams begin at once and each rate is one run of
`chairlift bench`. `us/chunk` is processor time of all client processes; `core` the busiest one's share of a core;
`lag` how late timers in the clients were; `within 1 %`: whether the chunks arrived at the pace they were written.
"""

import argparse
import importlib.util
import json
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chairlift.config.processors import num_processors

_HERE = Path(__file__).parent


def start_servers(stack: ExitStack, num: int, step_ms: float) -> int:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        for _ in range(num):
            command = [sys.executable, str(_HERE / "server.py"), str(port), str(step_ms)]
            server = subprocess.Popen(command, stdout=subprocess.PIPE)
            stack.callback(server.wait)
            stack.callback(server.kill)
            assert server.stdout is not None
            stack.callback(server.stdout.close)
            server.stdout.readline()
    return port


def measure(streams: int, rate: float, seconds: float, num_servers: int, clients: str | None) -> dict[str, Any]:
    step_ms = 1e3 * streams / rate
    num_tokens = max(2, round(seconds * 1e3 / step_ms))
    with ExitStack() as stack:
        port = start_servers(stack, num_servers, step_ms)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = [
            sys.executable,
            "-m",
            "chairlift",
            "bench",
            "--url",
            f"http://127.0.0.1:{port}",
            "--arrivals",
            "none",
        ]
        command += ["--workload", f"lengths:prompt=4,output={num_tokens},count={streams}", "--out", folder]
        command += ["--clients", clients] if clients else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        path = Path(folder) / "bench.json"
        if not path.exists():
            raise SystemExit(done.stderr)
        result: dict[str, Any] = json.loads(path.read_text())
    return result


def row(streams: int, rate: float, result: dict[str, Any]) -> str:
    figures, client = result["figures"], result["client"]
    pace = 1e3 * streams / rate
    lag, itl = client["lag_s"], figures["tpot_s"]["p50"]
    chunks_per_s = streams / itl if itl else 0.0
    return (
        f"{streams:8} {rate:9.0f} {chunks_per_s:9.0f} {figures['full']:6} {figures['chunks']:9} {client['clients']:8} "
        f"{client['busiest']:6.0%} {client['us_per_chunk']:9.1f} {client['machine']:8.0%} {1e3 * lag['p50']:8.2f} "
        f"{1e3 * lag['p99']:8.2f} {'yes' if abs(1e3 * itl / pace - 1) < 0.01 else 'NO':>11}"
    )


def compare_others(streams: int, rate: float, seconds: float, num_servers: int) -> None:
    """The cost of a chunk with other libraries (`clients.py`), in one process."""
    step_ms = 1e3 * streams / rate
    num_tokens = max(2, round(seconds * 1e3 / step_ms))
    for kind in ("aiohttp", "httpx", "streams"):
        if kind != "streams" and importlib.util.find_spec(kind) is None:
            continue
        with ExitStack() as stack:
            port = start_servers(stack, num_servers, step_ms)
            command = [sys.executable, str(_HERE / "clients.py"), kind, str(port)]
            done = subprocess.run(
                [*command, str(streams), str(num_tokens)], capture_output=True, text=True, timeout=120
            )
        print(f"{kind:>8}: {done.stdout.strip() or done.stderr.strip()[-200:]} us/chunk", flush=True)


def main() -> None:
    cores = num_processors()
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=1500)
    parser.add_argument("--rates", default="5000,10000,20000,40000,80000")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--servers", type=int, default=max(1, cores // 4))
    parser.add_argument("--clients")
    parser.add_argument("--others", action="store_true", help="measure other libraries too, at the first rate")
    arguments = parser.parse_args()
    print(f"{cores} cores, {arguments.servers} server processes; a chunk to every stream in turn")
    print(
        f"{'streams':>8} {'asked/s':>9} {'chunks/s':>9} {'full':>6} {'chunks':>9} {'clients':>8} {'core':>6} "
        f"{'us/chunk':>9} {'machine':>8} {'lag p50':>8} {'lag p99':>8} {'within 1 %':>11}  ms"
    )
    for rate in map(float, arguments.rates.split(",")):
        result = measure(arguments.streams, rate, arguments.seconds, arguments.servers, arguments.clients)
        print(row(arguments.streams, rate, result), flush=True)
        for doubt in result["client"]["doubts"]:
            print(f"         {doubt}")
    if arguments.others:
        rate = float(arguments.rates.partition(",")[0])
        compare_others(arguments.streams, rate, arguments.seconds, arguments.servers)


if __name__ == "__main__":
    main()
