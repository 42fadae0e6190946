"""A child process of a server: how it starts, what it reports, how it ends.

Always: a child ends when its parent does, unless native code holds its interpreter just then. Signals to the whole
process group (SIGINT, SIGTERM) are for the parent alone, which tells its children by signals of their own.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from chairlift.config.extras import not_installed
from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.telemetry.log_lines import flush_log

ReportReady = Callable[[Any], None]  # called once, with what the parent should know
Main = Callable[..., None]  # main(report, *args)

NO_ENGINE = signal.SIGUSR1  # to a front end: no engine will come any more
STOP = signal.SIGUSR2  # to a child: finish and end
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # reach every process of a group; the parent decides

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)

_spawn = multiprocessing.get_context("spawn")


def was_killed(code: int) -> bool:
    """Whether a process with this exit code was ended from outside: by a signal that no fault raises, or by `STOP`,
    which ends our processes with 0. A guess: the kernel's out-of-memory killer looks the same."""
    return code == 0 or (code < 0 and -code not in _FAULTS)


class Died(ChairliftError):
    """A process ended before it was ready, without an error message."""


class Child:
    """A process and the pipe on which it reports that it is ready, or why it cannot start."""

    def __init__(self, name: str, main: Main, *args: Any) -> None:
        self.name = name
        self.is_ready = False
        self.hung_s = 0.0  # how long it was silent before it was killed for that
        self.started = time.monotonic()
        self.pipe: Connection
        self.pipe, theirs = _spawn.Pipe(duplex=False)
        self.process: SpawnProcess = _spawn.Process(target=_child, args=(theirs, name, main, args), name=name)
        with _blocked_signals():
            self.process.start()
        self.pid = self.process.pid or 0  # stays known when the process is closed
        theirs.close()

    def wait_ready(self) -> Any:
        """Its report; raises `InvalidConfig` with its message when it cannot start, `Died` when it sent none."""
        try:
            is_ready, report = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise Died(f"the {self.name} died while starting ({self.describe_end()})") from None
        if not is_ready:
            raise InvalidConfig(report)
        self.is_ready = True
        return report

    def describe_end(self) -> str:
        if self.hung_s:
            return f"it hung: no sign of life for {self.hung_s:.0f} s"
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    @property
    def was_killed(self) -> bool:
        """From outside; valid once it has ended."""
        return not self.hung_s and was_killed(self.process.exitcode or 0)

    def tell(self, number: int) -> None:
        """Sends `STOP`, or `NO_ENGINE` to a front end that is ready."""
        if self.process.is_alive():
            os.kill(self.pid, number)

    def end_hang(self, silent_s: float) -> None:
        """Does not wait: a process stuck in the kernel ends only when the kernel lets it go."""
        self.hung_s = silent_s
        self.process.kill()

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()

    def close(self) -> None:
        """Frees the resources of a process that has ended."""
        self.pipe.close()
        self.process.close()


def as_ready(children: Sequence[Child]) -> Iterator[tuple[int, Any]]:
    """(place, report) of each when it is ready; the first that cannot start ends the wait, as `wait_ready` does."""
    starting = {child.pipe: place for place, child in enumerate(children)}
    while starting:
        for pipe in wait(list(starting)):
            place = starting.pop(pipe)  # type: ignore[call-overload]
            yield place, children[place].wait_ready()


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """A child started inside gets no Ctrl-C until it can ignore it, after its imports; this process gets it then."""
    resource_tracker.ensure_running()  # it would unblock the signals again
    signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)


def _child(pipe: Connection, name: str, main: Main, args: tuple[Any, ...]) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # the parent ended before the line above
        sys.exit(0)
    _prctl(_PR_SET_NAME, f"cl-{name.replace(' ', '-')}".encode())  # for `ps` and `top`; the kernel keeps 15 bytes
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    signal.signal(STOP, lambda *_: sys.exit(0))
    has_reported = False

    def report(what: Any) -> None:
        nonlocal has_reported
        has_reported = True
        pipe.send((True, what))

    try:
        main(report, *args)
    except ChairliftError as error:
        pipe.send((False, str(error)))
        sys.exit(2)
    except ModuleNotFoundError as error:
        line = not_installed(error)
        if line is None or has_reported:  # the parent reads no more
            raise
        pipe.send((False, line))
        sys.exit(2)


def on_parents_end(call: Callable[[], None]) -> None:
    """When the parent ends, this process runs `call` in a thread of its own and exits, instead of being killed."""
    parent = multiprocessing.parent_process()
    if parent is None:  # not started by a server
        return

    def run() -> None:
        wait([parent.sentinel])  # a pipe that the system closes
        try:
            call()
        finally:
            flush_log()
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)  # wakes a stopped process, so that the thread runs


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)
