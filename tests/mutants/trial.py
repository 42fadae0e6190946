"""Tries tests on a tree: which one fails first.

Always: tests that fail without a fault are deselected and never catch one. A run that takes several times as long as
without a fault hangs, which is caught.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryFile

import psutil

from mutants.tree import Tree

NO_TESTS = 5  # pytest's exit code
# No cache and no random order; Hypothesis draws the same examples each time and keeps none.
PYTEST = ("-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "no:randomly",
          "--hypothesis-profile=ci")  # fmt: skip
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Trial:
    caught_by: str | None  # a test, or how the run ended
    seconds: float


@dataclass(frozen=True, slots=True)
class Base:
    """How tests do without a fault."""

    seconds: float
    failing: tuple[str, ...]

    @property
    def limit_s(self) -> float:
        return 60 + 5 * self.seconds


def measure(tree: Tree, tests: Sequence[str], marks: str) -> Base:
    began = time.monotonic()
    _, printed = _pytest(tree, ["-m", marks, *tests], None)
    return Base(time.monotonic() - began, tuple(dict.fromkeys(_FAILED.findall(printed))))


def attempt(tree: Tree, tests: Sequence[str], marks: str, base: Base) -> Trial:
    began = time.monotonic()
    deselected = [
        f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in base.failing
    ]  # a file: its imports
    code, printed = _pytest(tree, ["-x", *deselected, "-m", marks, *tests], base.limit_s)
    seconds = time.monotonic() - began
    if code in (0, NO_TESTS):
        return Trial(None, seconds)
    if code is None:
        return Trial("time limit", seconds)
    failed = _FAILED.search(printed)
    return Trial(failed.group(1) if failed else f"pytest's exit code {code}", seconds)


def _pytest(tree: Tree, arguments: Sequence[str], limit_s: float | None) -> tuple[int | None, str]:
    """Exit code and output; no code once the limit is over. What the tests started has ended too."""
    with TemporaryFile() as output:  # a pipe would stay open as long as a process that outlives pytest
        process = psutil.Popen(
            [sys.executable, *PYTEST, *arguments], cwd=tree.root, env=tree.environment(),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit_s)
        except psutil.TimeoutExpired:
            code = None
        finally:
            _kill(process)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _kill(process: psutil.Popen) -> None:
    children = process.children(recursive=True) if process.is_running() else []
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in children:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
