"""A replica where it was placed: a script stands for `chairlift node`."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from chairlift.serving.placing import placed_node
from chairlift.serving.placing.placed_node import PlacedNode
from fakes.patience import HANG_S, wait_until

KEY = "22" * 32
_SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("started with", os.environ["CHAIRLIFT_CLUSTER_KEY"], os.environ.get("CHAIRLIFT_PORT"), file=sys.stderr)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
time.sleep(1000)
"""


class World:
    def __init__(self, path: Path, lease_s: float = HANG_S) -> None:
        self._pids = path / "pids"
        self._pids.touch()
        self.forsaken = threading.Event()
        self.node = PlacedNode(["-c", _SCRIPT, str(self._pids)], KEY, self.forsaken.set, lease_s)

    def pids(self) -> list[int]:
        return [int(line) for line in self._pids.read_text().splitlines()]


@contextmanager
def world_at(path: Path, lease_s: float = HANG_S) -> Iterator[World]:
    world = World(path, lease_s)
    try:
        yield world
    finally:
        world.node.end()


def test_the_key_alone_of_ours_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAIRLIFT_PORT", "7")
    with world_at(tmp_path) as world:
        wait_until(lambda: world.node.look().last_line == f"started with {KEY} None")
        wait_until(world.pids)
        assert KEY not in " ".join(psutil.Process(world.pids()[0]).cmdline())


def test_a_node_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_node, "_PAUSE_S", 0.0)
    with world_at(tmp_path) as world:
        wait_until(world.pids)
        os.kill(world.pids()[0], 9)
        wait_until(lambda: world.node.look().num_ends == 1)
        wait_until(lambda: world.node.look() and len(world.pids()) == 2)


def test_a_drained_node_leaves_and_stays_away(tmp_path: Path) -> None:
    with world_at(tmp_path) as world:
        wait_until(world.pids)
        assert not world.node.look().has_left
        world.node.drain()
        wait_until(lambda: world.node.look().has_left)
        assert world.node.look().num_ends == 0


def test_a_node_that_nobody_looks_at_ends(tmp_path: Path) -> None:
    with world_at(tmp_path, lease_s=0.05) as world:
        assert world.forsaken.wait(HANG_S)
        assert not any(map(psutil.pid_exists, world.pids()))
