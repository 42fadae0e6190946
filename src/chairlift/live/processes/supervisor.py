"""The supervisor: starts and watches one engine, or several replicas, some front ends, and helpers of them.

Always: when this process ends, the others end too. A process that dies after all were ready is started again, the
engine also while the server drains; an engine or a front end that hangs is killed and counts as crashed. A process that
cannot start, or keeps dying without progress, ends the server. On a stop signal front ends finish their requests; on a
second one, or while starting, all end at once. Knows nothing of what the processes do.
"""

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from chairlift.core.errors import ChairliftError
from chairlift.live.processes.child import NO_ENGINE, STOP, Child, Died, as_ready
from chairlift.live.processes.heartbeat import Heartbeat

MAX_DEATHS = 6  # in a row; after two the engine tries a token of its own, so no request can be the cause
LONG_LIFE_S = 60.0  # such a life counts as progress
_PATIENCE_S = 0.5  # an idle server is gone by then; a busy one says what it waits for
_GOODBYE_S = 2.0  # for front ends to tell their clients that the engine is gone

Say = Callable[[str], None]


class StopNow(BaseException):
    """Raised by a signal when there is nothing to finish first; at most once."""


class Deaths:
    """Deaths of one process in a row, without progress between them."""

    def __init__(self) -> None:
        self._count = 0
        self._progress = 0

    def add(self, name: str, lived_s: float, progress: int) -> None:
        """Raises `ChairliftError` when it is not worth starting another."""
        if progress != self._progress or lived_s >= LONG_LIFE_S:
            self._count = 0
        self._progress = progress
        self._count += 1
        if self._count >= MAX_DEATHS:
            raise ChairliftError(f"the {name} died {MAX_DEATHS} times in a row without any progress; giving up")


@dataclass(frozen=True, slots=True)
class Watched:
    """A process to keep: how it is started, and what shows that it does not hang."""

    start: Callable[[], Child]
    beat: Callable[[], int] = lambda: 0
    timeout_s: float = 0.0  # once ready it is killed when its beat does not change for these seconds; 0: never


@dataclass
class Supervisor:
    kept: list[Watched]  # the engines first, then helpers, then front ends
    progress: Callable[[int], int]  # grows while that engine makes tokens
    clear_up: Callable[[int], int]  # after a dead front end, by index, before its restart; how many requests it had
    on_engine_death: Callable[[int, bool], None]  # before its restart: whether it was killed from outside
    drain_timeout: Callable[[], float | None] = lambda: None  # seconds for draining front ends, and a moment
    num_engines: int = 1
    num_helpers: int = 0  # that end with the engines

    def __post_init__(self) -> None:
        self._heartbeats = [Heartbeat() for _ in self.kept]
        self._children: list[Child] = []  # in the order of `kept`
        self._reports: list[Any] = [None] * len(self.kept)  # in the same order
        self._deaths = [Deaths() for _ in self.kept]
        self._is_serving = False  # all have been ready
        self._is_starting = False  # a process that is not among the children yet
        self._is_stopping = False
        self._is_draining = False  # front ends have been told to stop
        self._is_urgent = False
        self._is_ending = False

    def run(self, say: Say, on_ready: Callable[[Sequence[Any]], None], told: Sequence[int] = ()) -> int:
        """Until a signal comes; the exit code. `on_ready` gets all reports, in the order of `kept`. `told`: signals
        that came before this call."""
        on_signals(self._stop)
        try:
            try:
                if not told:
                    self._serve(say, on_ready)
            finally:
                self._is_ending = True  # signals change nothing any more
        except StopNow:
            pass
        finally:
            on_signals(signal.SIG_IGN)  # also while the interpreter shuts down
            self._end()
        return 0

    def _serve(self, say: Say, on_ready: Callable[[Sequence[Any]], None]) -> None:
        for index in range(len(self.kept)):
            self._start(index)
        self._wait_ready()
        self._is_serving = True
        on_ready(self._reports)
        while not self._is_stopping:
            self._watch(say)
        self._drain(say)

    @property
    def _front_ends(self) -> list[Child]:
        return self._children[self._num_lasting :]

    @property
    def _num_lasting(self) -> int:
        """Processes that end after the front ends."""
        return self.num_engines + self.num_helpers

    @property
    def pids(self) -> list[int]:
        """Of the processes that run now."""
        return [child.pid for child in list(self._children)]

    def _start(self, index: int) -> None:
        self._is_starting = True
        self._children[index : index + 1] = [self.kept[index].start()]
        self._is_starting = False
        if self._is_urgent and not self._is_ending:
            self._is_ending = True
            raise StopNow

    def _wait_ready(self) -> None:
        """Until all are ready; the first that cannot start ends the wait."""
        for index, report in as_ready(self._children):
            self._reports[index] = report

    def _stop(self, number: int, _frame: object) -> None:
        if self._is_ending:
            return
        self._is_urgent = self._is_stopping or not self._is_serving
        self._is_stopping = True
        if self._is_urgent and not self._is_starting:  # else `_start` looks at it
            self._is_ending = True
            raise StopNow

    def _watch(self, say: Say) -> None:
        """Waits a moment; starts dead processes again, and announces those that are ready again."""
        children = {child.process.sentinel: child for child in self._children}
        starting = {child.pipe: child for child in self._children if not child.is_ready}
        happened = wait([*children, *starting], timeout=0.2)
        for pipe in starting.keys() & set(happened):
            self._welcome(starting[pipe], say)
        for sentinel in children.keys() & set(happened):
            self._replace(children[sentinel], say)
        self._look_for_hang()

    def _look_for_hang(self) -> None:
        for child, watched, heartbeat in zip(self._children, self.kept, self._heartbeats, strict=True):
            silent_s = heartbeat.look(watched.beat() if child.is_ready else None, time.monotonic())
            if watched.timeout_s and silent_s >= watched.timeout_s:
                child.end_hang(silent_s)

    def _welcome(self, child: Child, say: Say) -> None:
        try:
            report = child.wait_ready()
        except Died:  # it is replaced
            return
        # An engine that starts differently may answer with other bits: operators should know.
        now, index = "", self._children.index(child)
        if index < self.num_engines and report != self._reports[index]:
            now, self._reports[index] = f", but not as it was: {'; '.join(report)}", report
        say(f"the {child.name} is ready again after {time.monotonic() - child.started:.1f} s{now}")

    def _replace(self, child: Child, say: Say) -> None:
        child.process.join()
        index = self._children.index(child)
        is_engine, is_front_end = index < self.num_engines, index >= self._num_lasting
        if self._is_stopping and is_front_end:
            if child.hung_s:
                say(f"the {child.name} died ({child.describe_end()})")
            for each in (self._children, self.kept, self._heartbeats, self._deaths):
                del each[index]  # it has finished
            return
        lost = self.clear_up(index - self._num_lasting) if is_front_end else 0
        requests = f" with {lost} request{'s' if lost > 1 else ''} in flight" if lost else ""
        say(f"the {child.name} died ({child.describe_end()}){requests}; starting it again")
        self._deaths[index].add(child.name, time.monotonic() - child.started - child.hung_s, self._progress_of(index))
        if is_engine:
            self.on_engine_death(index, child.was_killed)
        self._start(index)
        child.close()

    def _progress_of(self, index: int) -> int:
        """An engine's own; for others, that of all engines."""
        engines = [index] if index < self.num_engines else range(self.num_engines)
        return sum(map(self.progress, engines))

    def _drain(self, say: Say) -> None:
        """Front ends finish their requests; the engines end last."""
        self._is_draining = True
        for child in self._front_ends:
            child.tell(STOP)
        if not _are_gone(self._front_ends, _PATIENCE_S):
            say("finishing the requests in flight; once more to stop at once")
        timeout_s = self.drain_timeout()
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s + _GOODBYE_S
        while self._front_ends and time.monotonic() < deadline:
            self._watch(say)
        for child in self._children[: self._num_lasting]:
            child.tell(STOP)
        _are_gone(self._children[: self._num_lasting], 5.0)

    def _end(self) -> None:
        """The engines end first, so that front ends can tell their clients. Draining front ends are told to stop a
        second time and report that; the others report the engine."""
        for child in self._children[: self._num_lasting]:
            child.kill()
        front_ends = [child for child in self._front_ends if child.is_ready]
        for child in front_ends:
            child.tell(STOP)
        if not self._is_draining or not _are_gone(front_ends, _GOODBYE_S / 2):
            for child in front_ends:
                child.tell(NO_ENGINE)
        _are_gone(front_ends, _GOODBYE_S)
        for child in self._children:
            child.kill()


def on_signals(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _are_gone(children: list[Child], timeout_s: float) -> bool:
    """Whether all have ended, at the latest when the time is up."""
    deadline = time.monotonic() + timeout_s
    for child in children:
        child.process.join(max(0.0, deadline - time.monotonic()))
    return not any(child.process.is_alive() for child in children)
