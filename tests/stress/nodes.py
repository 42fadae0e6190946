"""Three nodes in network namespaces, with addresses of their own: killed, cut off, slowed down, drained under streams.

    sudo PYTHONPATH=src:tests python tests/stress/nodes.py [--quick] [--kills 20] [--streams 64] [--seed 0] [--no-exact]

Needs root and `ip` (iproute2); the slow network also `tc` with netem, and is left out with a word where there is none.
A server without engines and three nodes (the embedded model unless one is named) are started, each node in a namespace
behind a bridge. Streams ask for the same requests again and again, as those of `kills.py` do, while all processes of a
node are killed at once and the node is started again; then links are taken down and up again, the network gets slow,
and every node is drained in turn. Every answer must be whole, and with `--exact` the undisturbed one. Prints a table
and exits with 1 if anything was lost. `--quick`: 2 kills under 8 streams.
"""

import argparse
import asyncio
import contextlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from kills import Answer, Tally, ask, parsed, requests, stream

from chairlift.config.cluster_key import make_key
from fakes.cluster import Node, start_node
from fakes.served import serve

_BRIDGE, _SERVER = "cl-stress", "10.97.0.1"
_NUM_NODES = 3
_PATIENCE_S = 180.0
_CUT_S = 8.0  # longer than heartbeats and the grace of a member


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def address(number: int) -> str:
    return f"10.97.0.{number + 2}"


@contextlib.contextmanager
def namespaces() -> Iterator[None]:
    """A bridge, and a namespace behind it for each node."""
    with contextlib.ExitStack() as undo:
        ip("link", "add", _BRIDGE, "type", "bridge")
        undo.callback(ip, "link", "del", _BRIDGE)
        ip("addr", "add", f"{_SERVER}/24", "dev", _BRIDGE)
        ip("link", "set", _BRIDGE, "up")
        for i in range(_NUM_NODES):
            name = f"{_BRIDGE}-{i}"
            ip("netns", "add", name)
            undo.callback(ip, "netns", "del", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", _BRIDGE, "up")
            for command in (("addr", "add", f"{address(i)}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
                ip("-n", name, *command)
            ip("-n", name, "link", "set", "lo", "up")
        yield


class Fleet:
    def __init__(self, folder: Path, join: str, options: list[str]) -> None:
        self.nodes: list[Node] = []
        self._folder, self._join, self._options = folder, join, options

    def start(self, number: int) -> Node:
        before = ("ip", "netns", "exec", f"{_BRIDGE}-{number}")
        log, key = self._folder / f"node-{number}", self._folder / "key"
        node = start_node(log, self._join, key, "--address", address(number), *self._options, before=before)
        self.nodes[number : number + 1] = [node]
        return node

    async def until_joined(self, number: int) -> None:
        node = self.nodes[number]
        while "joined " not in node.output:
            assert node.process.poll() is None, node.output
            await asyncio.sleep(0.1)

    def end(self) -> None:
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill()


async def recovered(tally: Tally, since: float, what: str) -> float:
    """Seconds until there are tokens again in a stream; the pause of one stream is longer than what this sees."""
    while tally.last_token < since + 0.1:
        if time.monotonic() - since > _PATIENCE_S:
            tally.problems.append(f"no token within {_PATIENCE_S:.0f} s of {what}")
            return _PATIENCE_S
        await asyncio.sleep(0.005)
    return tally.last_token - since


async def more_tokens(tally: Tally, count: float) -> None:
    enough = tally.tokens + count
    while tally.tokens < enough:
        await asyncio.sleep(0.005)


async def kill(fleet: Fleet, rng: random.Random, tally: Tally, options: argparse.Namespace) -> str:
    took = []
    for number in range(options.kills):
        await more_tokens(tally, options.streams * 8 * rng.random())
        victim = rng.randrange(_NUM_NODES)
        died = time.monotonic()
        fleet.nodes[victim].kill()
        tally.num_deaths += 1
        took.append(await recovered(tally, died, f"kill {number + 1}"))
        fleet.start(victim)
        await fleet.until_joined(victim)
    return f"{options.kills}, first token after it: median {statistics.median(took):.2f} s, longest {max(took):.2f} s"


async def cut(fleet: Fleet, tally: Tally, options: argparse.Namespace) -> str:
    for number in range(_NUM_NODES):
        await more_tokens(tally, options.streams * 4)
        tally.num_deaths += 1
        ip("link", "set", f"{_BRIDGE}-{number}", "down")
        await asyncio.sleep(_CUT_S)
        ip("link", "set", f"{_BRIDGE}-{number}", "up")
        await more_tokens(tally, options.streams * 4)
    return f"{_NUM_NODES} links down for {_CUT_S:.0f} s and up again"


async def slow(fleet: Fleet, tally: Tally, options: argparse.Namespace) -> str:
    made = []
    for number in range(_NUM_NODES):
        shape = (
            "tc",
            "qdisc",
            "add",
            "dev",
            f"{_BRIDGE}-{number}",
            "root",
            "netem",
            "delay",
            "40ms",
            "20ms",
            "loss",
            "1%",
        )
        made.append(subprocess.run(shape, capture_output=True, text=True))
    if any(each.returncode for each in made):
        return f"left out: {made[0].stderr.strip().splitlines()[0]}"
    await more_tokens(tally, options.streams * 30)
    for number in range(_NUM_NODES):
        subprocess.run(["tc", "qdisc", "del", "dev", f"{_BRIDGE}-{number}", "root"], check=True)
    return "40 ms more, 20 ms of jitter, 1 % of packets lost"


async def drain(fleet: Fleet, tally: Tally, options: argparse.Namespace) -> str:
    for number in range(_NUM_NODES):
        await more_tokens(tally, options.streams * 4)
        tally.num_deaths += 1
        process = fleet.nodes[number].process
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            await asyncio.sleep(0.05)
        if process.returncode:
            tally.problems.append(f"node {number} ended with {process.returncode} when it was told to stop")
        fleet.start(number)
        await fleet.until_joined(number)
    return f"{_NUM_NODES} nodes, one after the other"


async def run(url: str, fleet: Fleet, options: argparse.Namespace) -> list[tuple[str, str, Tally]]:
    rng, rows = random.Random(options.seed), []
    bodies = requests(rng, min(48, options.streams), options.tokens)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=httpx.Limits(max_connections=None)) as client:
        for number in range(_NUM_NODES):
            await fleet.until_joined(number)
        wanted: list[Answer] = await asyncio.gather(*(ask(client, body, Tally()) for body in bodies))
        parts: list[tuple[str, Callable[[Tally], object]]] = [
            ("kills of a node", lambda tally: kill(fleet, rng, tally, options)),
            ("partitions", lambda tally: cut(fleet, tally, options)),
            ("slow network", lambda tally: slow(fleet, tally, options)),
            ("drains", lambda tally: drain(fleet, tally, options)),
        ]
        for name, part in parts:
            tally, is_over, asked = Tally(), asyncio.Event(), iter(range(10**9))
            tally.problems += [f"undisturbed: {problem}" for answer in wanted for problem in answer.problems]
            streams = [
                asyncio.ensure_future(stream(client, asked, bodies, wanted, tally, options.exact, is_over))
                for _ in range(options.streams)
            ]
            told = await part(tally)  # type: ignore[misc]
            is_over.set()
            await asyncio.gather(*streams)
            rows.append((name, str(told), tally))
            print(
                f"{name}: {told}; {tally.answers} answers, {len(tally.problems)} problems", file=sys.stderr, flush=True
            )
    return rows


def table(options: argparse.Namespace, rows: list[tuple[str, str, Tally]]) -> str:
    lines = [
        f"| {options.streams} streams | | answers | disturbed | tokens | lost, repeated or different |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, told, tally in rows:
        numbers = f"{tally.answers} | {tally.resumed} | {tally.tokens:,} | {len(tally.problems)}"
        lines.append(f"| {name} | {told} | {numbers} |")
    return "\n".join(lines)


def main() -> int:
    options = parsed(__doc__, takes_options=False)
    model = [*(["--exact"] if options.exact else []), *(["--model", options.model] if options.model else [])]
    with namespaces(), tempfile.TemporaryDirectory() as name:
        folder, join = Path(name), f"{_SERVER}:7000"
        make_key(folder / "key")
        fleet = Fleet(folder, join, [*model, "--kv-memory", "128MiB", "--threads", "1"])
        try:
            for number in range(_NUM_NODES):
                fleet.start(number)
            arguments = (*model, "--replicas", 0, "--cluster", join, "--cluster-key", folder / "key")
            with serve(folder / "log", *arguments) as server:
                rows = asyncio.run(run(server.url, fleet, options))
                if any(tally.problems for _, _, tally in rows):
                    print(server.output[-4000:], file=sys.stderr)
        finally:
            fleet.end()
    print(table(options, rows))
    problems = [problem for _, _, tally in rows for problem in tally.problems]
    for problem in problems[:20]:
        print(f"\n{problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
