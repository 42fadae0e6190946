"""Three nodes in network namespaces, with addresses of their own: killed, cut off, slowed down, drained under streams.

    sudo PYTHONPATH=src:tests python tests/stress/nodes.py [--quick] [--kills 20] [--streams 64] [--seed 0] [--no-exact]
                                                           [--only kills|partitions|slow|drains]

Needs root and `ip` (iproute2). A server without engines and three nodes (the embedded model unless one is named) are
started, each node in a namespace behind a bridge. Streams ask for the same requests again and again, as those of
`kills.py` do, while all processes of a node are killed at once and the node is started again; then links are taken down
and up again, the network gets slow (`slow_network.py`), and every node is drained in turn. Every answer must be whole,
and with `--exact` the undisturbed one. Prints a table and exits with 1 if anything was lost. `--quick`: 2 kills under 8
streams.
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
from dataclasses import replace
from pathlib import Path

import httpx
from kills import Answer, Tally, ask, parsed, requests, stream
from slow_network import End, SlowNetwork, Weather

from chairlift.config.cluster_key import make_key
from fakes.cluster import Node, start_node
from fakes.served import serve

_BRIDGE, _SERVER = "cl-stress", "10.97.0.1"
_LIST, _PORT = 7000, 7100  # of the members' list, and of nodes behind forwarders
_NUM_NODES = 3
_PATIENCE_S = 180.0
_CUT_S = 8.0  # longer than heartbeats and the grace of a member
_SLOW = Weather(delay_s=0.1, jitter_s=0.05, bytes_per_s=125_000)
_STALL_S = 3.0  # as long as a link may be silent


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def address(number: int) -> str:
    return f"10.97.0.{number + 2}"


def behind(number: int) -> str:
    """Of a node that the forwarder stands before."""
    return f"10.97.1.{number + 2}"


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
            for where in (("-n", name), ()):  # the node listens in one, the forwarder in the other
                device = "lo" if where else _BRIDGE
                ip(*where, "addr", "add", f"{behind(i)}/32", "dev", device)
        yield


class Fleet:
    def __init__(self, folder: Path, options: list[str]) -> None:
        self.nodes: list[Node] = []
        self._folder, self._options = folder, options

    def start(self, number: int, is_behind: bool = False) -> Node:
        """`is_behind`: it and the server reach each other through forwarders."""
        before = ("ip", "netns", "exec", f"{_BRIDGE}-{number}")
        log, key = self._folder / f"node-{number}", self._folder / "key"
        join = f"127.0.0.1:{_LIST}" if is_behind else f"{_SERVER}:{_LIST}"
        reached = f"{behind(number)}:{_PORT}" if is_behind else address(number)
        node = start_node(log, join, key, "--address", reached, *self._options, before=before)
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
    """Nodes are started anew, one after the other, behind forwarders that can be made slow."""
    hops = [hop for number in range(_NUM_NODES) for hop in _hops(number)]
    network = await SlowNetwork.start(hops)
    try:
        for number in range(_NUM_NODES):
            await stop(fleet, number, tally)
            fleet.start(number, is_behind=True)
            await fleet.until_joined(number)
        network.change(_SLOW)
        await more_tokens(tally, options.streams * 15)
        for number in range(_NUM_NODES):
            tally.num_deaths += 1
            for hop in (2 * number, 2 * number + 1):
                network.change(replace(_SLOW, stall_s=_STALL_S, hop=hop))
            await asyncio.sleep(_STALL_S)
            await more_tokens(tally, options.streams * 4)
        network.change(Weather())
        await more_tokens(tally, options.streams * 4)
        for number in range(_NUM_NODES):
            await stop(fleet, number, tally)
            fleet.start(number)
            await fleet.until_joined(number)
    finally:
        await network.end()
    return (
        f"{_SLOW.delay_s * 1e3:.0f} ms each way, up to {_SLOW.jitter_s * 1e3:.0f} more, "
        f"{_SLOW.bytes_per_s * 8 / 1e6:.0f} Mbit/s; {_NUM_NODES} times nothing for {_STALL_S:.0f} s"
    )


def _hops(number: int) -> list[tuple[End, End]]:
    """From front ends to a node, and from it to the members' list."""
    name = f"{_BRIDGE}-{number}"
    return [
        (End("", behind(number), _PORT), End(name, behind(number), _PORT)),
        (End(name, "127.0.0.1", _LIST), End("", _SERVER, _LIST)),
    ]


async def stop(fleet: Fleet, number: int, tally: Tally) -> None:
    """A drain: its requests move first."""
    tally.num_deaths += 1
    process = fleet.nodes[number].process
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:
        await asyncio.sleep(0.05)
    if process.returncode:
        tally.problems.append(f"node {number} ended with {process.returncode} when it was told to stop")


async def drain(fleet: Fleet, tally: Tally, options: argparse.Namespace) -> str:
    for number in range(_NUM_NODES):
        await more_tokens(tally, options.streams * 4)
        await stop(fleet, number, tally)
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
        parts: dict[str, Callable[[Tally], object]] = {
            "kills": lambda tally: kill(fleet, rng, tally, options),
            "partitions": lambda tally: cut(fleet, tally, options),
            "slow": lambda tally: slow(fleet, tally, options),
            "drains": lambda tally: drain(fleet, tally, options),
        }
        for name, part in parts.items():
            if options.only not in (None, name):
                continue
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
    options = parsed(__doc__, takes_options=False, parts=["kills", "partitions", "slow", "drains"])
    model = [*(["--exact"] if options.exact else []), *(["--model", options.model] if options.model else [])]
    with namespaces(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_key(folder / "key")
        fleet = Fleet(folder, [*model, "--kv-memory", "128MiB", "--threads", "1"])
        try:
            for number in range(_NUM_NODES):
                fleet.start(number)
            arguments = (*model, "--replicas", 0, "--cluster", f"{_SERVER}:{_LIST}", "--cluster-key", folder / "key")
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
