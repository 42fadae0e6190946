"""The processes of a server: one engine, some front ends, and this one, which starts and watches them.

Always: when this process ends, however it ends, the others end too. An engine that dies after it was ready is started
again; one that cannot start ends the server, and so does a front end that dies. Told to stop, front ends finish what
they have begun, however long it takes; told again, or while starting, all end at once. Knows nothing of what the
processes do.
"""

import ctypes
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from chairlift.core.errors import ChairliftError, InvalidConfig

Report = Callable[[Any], None]  # a child says once that it is ready, with whatever the parent should know
Main = Callable[..., None]  # main(report, *args)

MAX_DEATHS = 3  # of the engine within
DEATHS_WINDOW_S = 60.0
_PATIENCE_S = 0.5  # an idle server is gone by then; one that is not says what it waits for
_GOODBYE_S = 2.0  # for front ends to tell their clients that the engine is gone

_spawn = multiprocessing.get_context("spawn")


class StopNow(BaseException):
    """Raised by a signal, wherever the parent is, when there is nothing to finish first; at most once."""


class Child:
    """A process and the pipe on which it reports that it is ready, or why it cannot be."""

    def __init__(self, name: str, main: Main, *args: Any) -> None:
        self.name = name
        self.is_ready = False
        self.pipe: Connection
        self.pipe, theirs = _spawn.Pipe(duplex=False)
        self.process: SpawnProcess = _spawn.Process(target=_child, args=(theirs, main, args), name=name)
        self.process.start()
        theirs.close()

    def wait_ready(self) -> Any:
        """What it reported; raises `InvalidConfig` with its own words when it cannot start."""
        try:
            is_ready, report = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise ChairliftError(f"the {self.name} died while starting ({self.describe_end()})") from None
        if not is_ready:
            raise InvalidConfig(report)
        self.is_ready = True
        return report

    def describe_end(self) -> str:
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.terminate()

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


class Server:
    def __init__(self, start_engine: Callable[[], Child], start_front_ends: list[Callable[[], Child]]) -> None:
        self._start_engine = start_engine
        self._start_front_ends = start_front_ends
        self._children: list[Child] = []
        self._deaths: list[float] = []
        self._is_starting = False  # a process that may not be in the list of children yet
        self._is_stopping = False
        self._is_ending = False

    def run(self, say: Callable[[str], None], on_ready: Callable[[Any], None]) -> int:
        """Until a signal comes; the exit code."""
        _on_signals(self._stop)
        try:
            try:
                self._serve(say, on_ready)
            finally:
                self._is_ending = True  # from here on signals change nothing
        except StopNow:
            pass
        finally:
            _on_signals(signal.SIG_IGN)  # also while the interpreter shuts down
            self._end()
        return 0

    def _serve(self, say: Callable[[str], None], on_ready: Callable[[Any], None]) -> None:
        self._is_starting = True
        for start in (self._start_engine, *self._start_front_ends):
            self._children.append(start())
        self._is_starting = False
        if self._is_stopping:
            return
        on_ready(self._wait_ready())
        while not self._is_stopping:
            self._watch(say)
        self._drain(say)

    @property
    def pids(self) -> list[int]:
        """Of the processes as they are now."""
        return [child.process.pid for child in list(self._children) if child.process.pid is not None]

    @property
    def _engine(self) -> Child:
        return self._children[0]

    def _wait_ready(self) -> Any:
        """The engine's report, once all are ready; the first that cannot start ends the wait."""
        report = None
        starting = {child.pipe: child for child in self._children}
        while starting:
            for pipe in wait(list(starting)):
                child = starting.pop(pipe)  # type: ignore[call-overload]
                said = child.wait_ready()
                report = said if child is self._engine else report
        return report

    def _stop(self, number: int, _frame: object) -> None:
        if self._is_ending:
            return
        is_asked_twice, self._is_stopping = self._is_stopping, True
        if self._is_starting:  # looked at when all of them are known
            return
        if is_asked_twice or not all(child.is_ready for child in self._children):
            self._is_ending = True
            raise StopNow

    def _watch(self, say: Callable[[str], None]) -> None:
        gone = wait([child.process.sentinel for child in self._children], timeout=0.2)
        for child in [child for child in self._children if child.process.sentinel in gone]:
            if self._is_stopping:
                return
            child.process.join()
            if child is not self._engine:
                raise ChairliftError(f"the {child.name} died ({child.describe_end()})")
            say(f"the engine died ({child.describe_end()}); starting it again")
            now = time.monotonic()
            self._deaths = [at for at in self._deaths if now - at < DEATHS_WINDOW_S] + [now]
            if len(self._deaths) >= MAX_DEATHS:
                raise ChairliftError(f"the engine died {MAX_DEATHS} times within {DEATHS_WINDOW_S:.0f} s; giving up")
            self._is_starting = True
            self._children[0] = self._start_engine()
            self._is_starting = False
            if self._is_stopping:
                return
            self._engine.wait_ready()
            say("the engine is ready again")

    def _drain(self, say: Callable[[str], None]) -> None:
        """Front ends finish what they have begun; the engine goes last."""
        front_ends = self._children[1:]
        for child in front_ends:
            child.stop()
        if not _are_gone(front_ends, _PATIENCE_S):
            say("finishing the requests under way; once more to stop at once")
        for child in front_ends:
            child.process.join()
        self._engine.stop()
        self._engine.process.join(5.0)

    def _end(self) -> None:
        """The engine goes first, so that front ends that have clients left can tell them so."""
        front_ends = [child for child in self._children[1:] if child.is_ready]
        for child in front_ends:
            child.stop()
        for child in self._children[:1]:
            child.kill()
        _are_gone(front_ends, _GOODBYE_S)
        for child in self._children:
            child.kill()


def _on_signals(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _are_gone(children: list[Child], timeout_s: float) -> bool:
    """Whether all have ended, at the latest when the time is up."""
    deadline = time.monotonic() + timeout_s
    for child in children:
        child.process.join(max(0.0, deadline - time.monotonic()))
    return not any(child.process.is_alive() for child in children)


def _child(pipe: Connection, main: Main, args: tuple[Any, ...]) -> None:
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        main(lambda report: pipe.send((True, report)), *args)
    except ChairliftError as error:
        pipe.send((False, str(error)))
        sys.exit(2)


def _die_with_parent() -> None:
    """Linux only; elsewhere a parent that is killed leaves its children behind."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
