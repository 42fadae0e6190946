"""A process of a server, from the outside: how it is started, what it reports, how it ends.

Always: a child ends when its parent does, however that comes about, unless native code holds its interpreter just then.
What a terminal or a supervisor sends to all processes at once (SIGINT, SIGTERM) is for the parent alone, which tells
its children by signals of their own.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from chairlift.core.errors import ChairliftError, InvalidConfig

ReportReady = Callable[[Any], None]  # a child says once that it is ready, with whatever the parent should know
Main = Callable[..., None]  # main(report, *args)

NO_ENGINE = signal.SIGUSR1  # to a front end: none will come any more
STOP = signal.SIGUSR2  # to a child: finish and end
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # what reaches every process of a group; the parent decides

_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)

_spawn = multiprocessing.get_context("spawn")


def was_killed(code: int) -> bool:
    """Whether a process that ended so was told to from outside: by a signal that no fault of its own brings, or by
    `STOP`, at which our processes end with 0. As far as can be told: the kernel kills so for want of memory."""
    return code == 0 or (code < 0 and -code not in _FAULTS)


class Died(ChairliftError):
    """A process ended before it was ready, without a word."""


class Child:
    """A process and the pipe on which it reports that it is ready, or why it cannot be."""

    def __init__(self, name: str, main: Main, *args: Any) -> None:
        self.name = name
        self.is_ready = False
        self.hung_s = 0.0  # for which it had done nothing when it was ended for that
        self.started = time.monotonic()
        self.pipe: Connection
        self.pipe, theirs = _spawn.Pipe(duplex=False)
        self.process: SpawnProcess = _spawn.Process(target=_child, args=(theirs, name, main, args), name=name)
        with _blocked_signals():
            self.process.start()
        self.pid = self.process.pid or 0  # stays known when the process is closed
        theirs.close()

    def wait_ready(self) -> Any:
        """What it reported; raises `InvalidConfig` with its own words when it cannot start, `Died` when it has none."""
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
        """By somebody; to be asked when it has ended."""
        return not self.hung_s and was_killed(self.process.exitcode or 0)

    def stop(self) -> None:
        self._tell(STOP)

    def tell_no_engine(self) -> None:
        """Only a front end that is ready listens to it."""
        self._tell(NO_ENGINE)

    def _tell(self, number: int) -> None:
        if self.process.is_alive():
            os.kill(self.pid, number)

    def end_hang(self, silent_s: float) -> None:
        """Does not wait: a process that hangs in the kernel ends only when that lets it go."""
        self.hung_s = silent_s
        self.process.kill()

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()

    def close(self) -> None:
        """It has ended, and nobody asks for it any more."""
        self.pipe.close()
        self.process.close()


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Who is started here hears no Ctrl-C before it can ignore it, which takes as long as its imports; this process
    hears of it in the end."""
    resource_tracker.ensure_running()  # which would unblock the signals again
    signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)


def _child(pipe: Connection, name: str, main: Main, args: tuple[Any, ...]) -> None:
    _set_parent_death_signal(signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it was gone before it could be told
        sys.exit(0)
    _set_process_name(f"cl-{name.replace(' ', '-')}")
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    signal.signal(STOP, lambda *_: sys.exit(0))
    try:
        main(lambda report: pipe.send((True, report)), *args)
    except ChairliftError as error:
        pipe.send((False, str(error)))
        sys.exit(2)


def on_parents_end(call: Callable[[], None]) -> None:
    """From here on this process is not killed when its parent ends: it calls this, in a thread of its own, and ends."""
    parent = multiprocessing.parent_process()
    if parent is None:  # started by somebody else, who sees to it
        return

    def run() -> None:
        wait([parent.sentinel])  # the other end of a pipe, which the system closes
        try:
            call()
        finally:
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()
    _set_parent_death_signal(signal.SIGCONT)  # a process that is stopped does nothing else


def _set_parent_death_signal(number: int) -> None:
    """The system sends this signal then, at once; Linux only."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, number)


def _set_process_name(name: str) -> None:
    """What `ps`, `top` and the kernel's own log call this process; the kernel keeps 15 bytes of it."""
    if sys.platform == "linux":
        pr_set_name = 15
        ctypes.CDLL(None).prctl(pr_set_name, name.encode())
