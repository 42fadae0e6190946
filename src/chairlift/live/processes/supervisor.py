"""The processes of a server: one engine, some front ends, and this one, which starts and watches them.

Always: when this process ends, however it ends, the others end too. Who dies after all were ready is started again, the
engine also while the server drains, and an engine that hangs is killed and counts as crashed; who cannot start, or dies
again and again without any progress, ends the server. Told to stop, front ends finish what they have begun, however
long it takes; told again, or while starting, all end at once. Knows nothing of what the processes do.
"""

import math
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

from chairlift.core.errors import ChairliftError
from chairlift.live.processes.child import Child, Died
from chairlift.live.processes.heartbeat import Heartbeat

MAX_DEATHS = 6  # in a row; after two the engine tries a token of its own, so no request can be the reason
LONG_LIFE_S = 60.0  # who lived so long has made progress, whatever it did
_PATIENCE_S = 0.5  # an idle server is gone by then; one that is not says what it waits for
_GOODBYE_S = 2.0  # for front ends to tell their clients that the engine is gone

Say = Callable[[str], None]


class StopNow(BaseException):
    """Raised by a signal, wherever the parent is, when there is nothing to finish first; at most once."""


class Deaths:
    """Of one process, in a row without progress between them."""

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


class Supervisor:
    def __init__(
        self,
        start_engine: Callable[[], Child],
        start_front_ends: list[Callable[[], Child]],
        progress: Callable[[], int] = lambda: 0,
        clear_up: Callable[[int], int] = lambda front_end: 0,
        drain_timeout: Callable[[], float | None] = lambda: None,
        on_engine_death: Callable[[bool], None] = lambda was_killed: None,
        engine_beat: Callable[[], int] = lambda: 0,
        engine_timeout: float = 0.0,
    ) -> None:
        """`progress` is a number that grows while the engine makes tokens. `clear_up` is told of each front end that
        died, by its index, before it is started again, and says how many requests it had. Front ends that were
        told to stop have `drain_timeout` seconds and a moment for it. `on_engine_death` is told, before the next is
        started, whether somebody killed the engine. `engine_beat` is a number that changes while the engine lives; one
        that is ready and for which it stays the same for `engine_timeout` seconds is killed. 0: none is."""
        self._starts = [start_engine, *start_front_ends]
        self._progress = progress
        self._clear_up = clear_up
        self._drain_timeout = drain_timeout
        self._on_engine_death = on_engine_death
        self._engine_beat = engine_beat
        self._engine_timeout = engine_timeout
        self._heartbeat = Heartbeat()
        self._children: list[Child] = []  # the engine first
        self._report: Any = None  # the engine's
        self._deaths = [Deaths() for _ in self._starts]
        self._is_serving = False  # all have been ready
        self._is_starting = False  # a process that is not in the list of children yet
        self._is_stopping = False
        self._is_draining = False  # front ends have been told to stop
        self._is_urgent = False
        self._is_ending = False

    def run(self, say: Say, on_ready: Callable[[Any], None], told: Sequence[int] = ()) -> int:
        """Until a signal comes; the exit code. `told`: signals that came before anybody could deal with them."""
        on_signals(self._stop)
        try:
            try:
                if not told:
                    self._serve(say, on_ready)
            finally:
                self._is_ending = True  # from here on signals change nothing
        except StopNow:
            pass
        finally:
            on_signals(signal.SIG_IGN)  # also while the interpreter shuts down
            self._end()
        return 0

    def _serve(self, say: Say, on_ready: Callable[[Any], None]) -> None:
        for place in range(len(self._starts)):
            self._start(place)
        self._report = self._wait_ready()
        self._is_serving = True
        on_ready(self._report)
        while not self._is_stopping:
            self._watch(say)
        self._drain(say)

    @property
    def pids(self) -> list[int]:
        """Of the processes as they are now."""
        return [child.pid for child in list(self._children)]

    def _start(self, place: int) -> None:
        self._is_starting = True
        self._children[place : place + 1] = [self._starts[place]()]
        self._is_starting = False
        if self._is_urgent and not self._is_ending:
            self._is_ending = True
            raise StopNow

    def _wait_ready(self) -> Any:
        """The engine's report, once all are ready; the first that cannot start ends the wait."""
        report = None
        starting = {child.pipe: child for child in self._children}
        while starting:
            for pipe in wait(list(starting)):
                child = starting.pop(pipe)  # type: ignore[call-overload]
                said = child.wait_ready()
                report = said if child is self._children[0] else report
        return report

    def _stop(self, number: int, _frame: object) -> None:
        if self._is_ending:
            return
        self._is_urgent = self._is_stopping or not self._is_serving
        self._is_stopping = True
        if self._is_urgent and not self._is_starting:  # else looked at when the process is known
            self._is_ending = True
            raise StopNow

    def _watch(self, say: Say) -> None:
        """Waits a moment; who died meanwhile is started again, and who is ready again is told of."""
        children = {child.process.sentinel: child for child in self._children}
        starting = {child.pipe: child for child in self._children if not child.is_ready}
        happened = wait([*children, *starting], timeout=0.2)
        for pipe in starting.keys() & set(happened):
            self._welcome(starting[pipe], say)
        for sentinel in children.keys() & set(happened):
            self._replace(children[sentinel], say)
        self._look_for_hang()

    def _look_for_hang(self) -> None:
        engine = self._children[0]
        silent_s = self._heartbeat.look(self._engine_beat() if engine.is_ready else None, time.monotonic())
        if self._engine_timeout and silent_s >= self._engine_timeout:
            engine.end_hang(silent_s)

    def _welcome(self, child: Child, say: Say) -> None:
        try:
            report = child.wait_ready()
        except Died:  # it is replaced
            return
        # One that serves with something else may answer with other bits, whatever the reason: operators should know.
        now = ""
        if child is self._children[0] and report != self._report:
            now, self._report = f", but not as it was: {'; '.join(report)}", report
        say(f"the {child.name} is ready again after {time.monotonic() - child.started:.1f} s{now}")

    def _replace(self, child: Child, say: Say) -> None:
        child.process.join()
        place = self._children.index(child)
        if self._is_stopping and place:
            del self._children[place], self._starts[place], self._deaths[place]  # it has finished
            return
        lost = self._clear_up(place - 1) if place else 0
        requests = f" with {lost} request{'s' if lost > 1 else ''} under way" if lost else ""
        say(f"the {child.name} died ({child.describe_end()}){requests}; starting it again")
        self._deaths[place].add(child.name, time.monotonic() - child.started - child.hung_s, self._progress())
        if place == 0:
            self._on_engine_death(child.was_killed)
        self._start(place)
        child.close()

    def _drain(self, say: Say) -> None:
        """Front ends finish what they have begun; the engine goes last."""
        self._is_draining = True
        for child in self._children[1:]:
            child.stop()
        if not _are_gone(self._children[1:], _PATIENCE_S):
            say("finishing the requests under way; once more to stop at once")
        timeout_s = self._drain_timeout()
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s + _GOODBYE_S
        while len(self._children) > 1 and time.monotonic() < deadline:
            self._watch(say)
        engine = self._children[0]
        engine.stop()
        engine.process.join(5.0)

    def _end(self) -> None:
        """The engine goes first; then front ends that have clients left can tell them so. Those that drain are told to
        stop for the second time, and speak of that; the others speak of the engine."""
        for child in self._children[:1]:
            child.kill()
        front_ends = [child for child in self._children[1:] if child.is_ready]
        for child in front_ends:
            child.stop()
        if not self._is_draining or not _are_gone(front_ends, _GOODBYE_S / 2):
            for child in front_ends:
                child.tell_no_engine()
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
