"""Streaming through Ray Serve beside our front end with an engine on a node that Ray placed: tokens/s, first token.

    pip install 'ray[serve]'
    python benchmarks/ray_serve/beside.py [--turns 5] [--streams 16 64 256] [--tokens 128] [--step-ms 10] [--singles 60]

Both are on one Ray cluster of this machine, with the same paced engine without a model (a token for each stream every
step), the same events and the same clients, which only count (`front_end/client.py`). Ray Serve: client, HTTP proxy,
replica (`deployment.py`), with its own settings. Ours: client, front end, engine process that an actor of Ray started
(`PlacedNode`), over TCP and CURVE. Asked in turns, so that both see the same machine. Processor time is that of engine
and front end, and of all processes of Ray for Ray Serve. A first token is that of one request at a time.
"""

import argparse
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import ray
from ray import serve

_HERE = Path(__file__).resolve().parent
_FRONT_END = _HERE.parent / "front_end"
sys.path[:0] = [str(_HERE), str(_FRONT_END)]

from engine import _TEXT  # noqa: E402
from servers import filled_in  # noqa: E402
from transports import Pair, Turn, first_token_ms, measure, pair  # noqa: E402

from chairlift.build import find_model  # noqa: E402
from chairlift.config.settings import Settings  # noqa: E402
from chairlift.serving.placing.placed_node import PlacedNode  # noqa: E402
from chairlift.text.find import load_tokenizer  # noqa: E402

_LONG_S = 3600.0
_RAY = ("raylet", "gcs_server")
_MAX_RUNNING = 256


@contextmanager
def cluster() -> Iterator[None]:
    paths = [str(_HERE), str(_FRONT_END), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for the processes that Ray starts
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")  # a busy machine starts it slowly
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


def placed(stack: ExitStack, env: dict[str, str], command: list[str]) -> psutil.Process:
    """Our engine, started by an actor."""
    parts = [str(_FRONT_END / command[0]), *command[1:]]
    actor = ray.remote(PlacedNode).options(num_cpus=1).remote(parts, "", _nothing, _LONG_S)
    stack.callback(ray.kill, actor)
    ray.get(actor.look.remote())
    (found,) = [each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [])[1:] == parts]
    return found


def _nothing() -> None:
    pass


def ray_serve(step_s: float) -> Pair:
    from deployment import Paced

    with socket.create_server(("127.0.0.1", 0)) as trial:
        port = trial.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    tokenizer = load_tokenizer(find_model(Settings()).source, None)
    tokens = tokenizer.encode(_TEXT.read_text(), add_special=False)
    events = [filled_in(tokenizer.decode([token])) for token in tokens]
    serve.run(Paced.bind(events, _MAX_RUNNING, step_s), route_prefix="/")
    return Pair(str(port), list(_processes_of_ray()))


def _processes_of_ray() -> Iterator[psutil.Process]:
    """All but actors that only watch our engine; those are idle."""
    for process in psutil.process_iter(["name", "cmdline"]):
        words = process.info["cmdline"] or [""]
        if process.info["name"] in _RAY or words[0].startswith("ray::"):
            yield process


def table(streams: int, demand: float, turns: list[list[Turn]]) -> str:
    rates = [statistics.median(turn[i].rate for turn in turns) for i in range(2)]
    times = [statistics.median(turn[i].token_us for turn in turns) for i in range(2)]
    ratio = statistics.median(turn[1].rate / turn[0].rate for turn in turns)
    wanted = min(streams, _MAX_RUNNING) * demand
    rows = f"| {streams} | {wanted:,.0f} | {rates[0]:,.0f} | {rates[1]:,.0f} | {ratio:.2f}x "
    return f"{rows}| {times[0]:.0f} | {times[1]:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--singles", type=int, default=60)
    options = parser.parse_args()
    load = ("--running", str(_MAX_RUNNING), "--step-ms", str(options.step_ms))
    with cluster(), ExitStack() as stack:
        pairs = [ray_serve(options.step_ms / 1e3), pair(stack, is_tcp=True, load=load, start=placed)]
        for each in pairs:  # warm-up
            measure(each, 16, 8)
        singles = []
        for _ in range(options.singles):
            singles.append([first_token_ms(each.port) for each in pairs])
            time.sleep(2 * options.step_ms / 1e3)  # the engine is idle again
        waits = [statistics.median(turn[i] for turn in singles) for i in range(2)]
        print(f"first token of one request, ms: Ray Serve {waits[0]:.2f}, ours {waits[1]:.2f}\n")
        print("| streams | tokens/s of the engine | Ray Serve | ours | | processor us a token, Ray Serve | ours |")
        print("|---:|---:|---:|---:|---:|---:|---:|")
        for streams in options.streams:
            turns = [[measure(each, streams, options.tokens) for each in pairs] for _ in range(options.turns)]
            print(table(streams, 1e3 / options.step_ms, turns), flush=True)


if __name__ == "__main__":
    main()
