"""`chairlift` as users run it: a process of its own, seen through its output, its exit code and its port."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil

from fakes.patience import HANG_S, wait_until

_SOURCE = str(Path(__file__).parents[2] / "src")
_NOTHING: Mapping[str, str] = MappingProxyType({})


def chairlift(
    *arguments: object,
    given: str = "",
    before: Sequence[str] = (),
    environment: Mapping[str, str] = _NOTHING,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. `before`: a command that runs it in its place. `folder`: the current one for it."""
    command, variables = [*before, *_command(*arguments)], _environment() | environment
    return subprocess.run(
        command, input=given, env=variables, cwd=folder, capture_output=True, text=True, timeout=HANG_S
    )


@dataclass
class Served:
    process: subprocess.Popen[bytes]
    log: Path
    url: str
    ready_s: float  # from the start of the process until it said it was ready

    @property
    def output(self) -> str:
        return self.log.read_text()

    def pids(self) -> tuple[int, list[int]]:
        """The engine's process id, of several the largest one's, and those of the other processes."""
        sizes = {}
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # those that ended count for nothing, though the parent may be busy
                if "resource_tracker" not in " ".join(child.cmdline()):
                    sizes[child.pid] = child.memory_info().rss
        # Told apart by what only the engine does: it holds the weights, so it is by far the largest.
        engine = max(sizes, key=lambda pid: sizes[pid])
        return engine, [pid for pid in sizes if pid != engine]

    def kill(self, *names: str) -> None:
        """Some of "parent", "engine" and "front end" at once: none lives to see another's death."""
        engine, front_ends = self.pids()
        pids = {"parent": self.process.pid, "engine": engine, "front end": front_ends[0]}
        for name in names:
            os.kill(pids[name], signal.SIGSTOP)
        for name in names:
            os.kill(pids[name], signal.SIGKILL)


@contextmanager
def serve(
    log: Path,
    *arguments: object,
    environment: Mapping[str, str] = _NOTHING,
    before: Sequence[str] = (),
    is_group: bool = False,
) -> Iterator[Served]:
    """`before`: a command that runs this one in its place. `is_group`: its processes are a group of their own, as those
    of a command in a terminal are."""
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*before, *_command("serve", "--port", "0", *arguments)],
            env=_environment() | environment,
            stdout=out,
            stderr=out,
            start_new_session=is_group,
        )
    try:
        wait_until(lambda: process.poll() is not None or "ready in " in log.read_text(), log.read_text)
        assert process.poll() is None, f"the server ended: {log.read_text()}"
        ready_s = time.monotonic() - began
        found = re.search(r"starting .* on ((?:https?://|unix:)[^\s\"]+)", log.read_text())
        assert found is not None, log.read_text()
        yield Served(process, log, found[1], ready_s)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def chairlift_command(*arguments: object) -> tuple[list[str], dict[str, str]]:
    """And its environment."""
    return _command(*arguments), _environment()


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "chairlift", *map(str, arguments)]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CHAIRLIFT_")} | {
        "PYTHONPATH": _SOURCE
    }
