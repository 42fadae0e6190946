"""`chairlift node` beside a server that `served.py` starts: processes seen through their logs."""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from fakes.patience import HANG_S, wait_until
from fakes.served import _command, _environment


@dataclass
class Node:
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_joined(self) -> None:
        wait_until(lambda: "joined " in self.output or self.process.poll() is not None, lambda: self.output)
        assert self.process.poll() is None, self.output

    def kill(self) -> None:
        """All of its processes at once, as a machine dies."""
        family = [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]
        for each in family:
            each.suspend()
        for each in family:
            each.kill()
        self.process.wait()


def start_node(log: Path, join: str, key: Path, *arguments: object, before: Sequence[str] = ()) -> Node:
    with log.open("wb") as out:
        parts = [*before, *_command("node", "--join", join, "--cluster-key", key, *arguments)]
        return Node(subprocess.Popen(parts, env=_environment(), stdout=out, stderr=out), log)


@contextmanager
def ended(nodes: list[Node]) -> Iterator[list[Node]]:
    """Ends those that are in the list then."""
    try:
        yield nodes
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        for node in nodes:
            try:
                node.process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
