"""A run: client processes with a share of the requests each, told when to begin and, if need be, when to stop.

Always: when a run ends, in whatever way, its processes are gone, and every request that was sent has a record. A lost
server or Ctrl-C ends the run and keeps what was measured.
"""

import multiprocessing
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from time import monotonic
from types import FrameType
from typing import Any

import psutil

from chairlift.config.processors import num_processors
from chairlift.core.errors import ChairliftError
from chairlift.lab.bench import client
from chairlift.lab.bench.display import RunProgress
from chairlift.lab.bench.messages import Begin, ClientProgress, ClientReady, ClientUsage, LoadPlan, Stop
from chairlift.lab.bench.probe import check_answers
from chairlift.lab.bench.record import ClientRecord

INTERRUPTED = "it was interrupted"
GONE_AFTER_S = 5.0  # a server that accepts no connection for this long is gone
_LEAD_S = 0.3  # for every client process to learn of the start before it comes
_TURN_S = 0.1
_spawn = multiprocessing.get_context("spawn")

Watch = Callable[[RunProgress], None]  # called about ten times a second


@dataclass(frozen=True, slots=True)
class Measurements:
    num_planned: int
    num_warm_up: int
    num_warm_up_failed: int
    records: list[ClientRecord]
    usages: list[ClientUsage]
    machine: float  # share of the machine's cores that all processes used
    stopped: str = ""  # why it is partial; empty if it is complete


def num_clients(wanted: int | None, num_requests: int, concurrency: int) -> int:
    """The wanted number, or one for every four cores; at most one per request in flight."""
    most = min(num_requests, concurrency or num_requests)
    return min(wanted or max(1, num_processors() // 4), most)


def run(load: LoadPlan, watch: Watch) -> Measurements:
    for name, trial in load.trials.items():
        check_answers(load.target, load.peer, name, trial, load.timeout_s)
    with ExitStack() as stack:
        clients = _Clients(load, stack)
        stop = _StopReason()
        stack.enter_context(_on_interrupt(stop.interrupt))
        warm, _, stopped = clients.phase(True, len(load.warm_up), stop, watch) if load.warm_up else ([], [], "")
        num_bad = sum(not record.is_answered for record in warm)
        if load.warm_up and num_bad == len(warm):
            stopped = stopped or f"no request of the warm-up was answered: {warm[0].reason}"
        if stopped:
            return Measurements(len(load.requests), len(warm), num_bad, [], [], 0.0, stopped)
        psutil.cpu_percent()  # from here on
        records, usages, stopped = clients.phase(False, len(load.requests), stop, watch)
        machine = psutil.cpu_percent() / 100.0
        return Measurements(len(load.requests), len(warm), num_bad, records, usages, machine, stopped)


class _Clients:
    def __init__(self, load: LoadPlan, stack: ExitStack) -> None:
        self._load = load
        with _on_interrupt(signal.SIG_IGN):  # inherited: clients ignore Ctrl-C even while they start
            started = [_start(number, stack) for number in range(load.num_clients)]
        self._commands = [commands for commands, _ in started]
        self._reports = [reports for _, reports in started]
        for number, commands in enumerate(self._commands):
            with suppress(BrokenPipeError):  # a dead one is noticed below
                commands.send(_share(load, number))
        for reports in self._reports:
            if not isinstance(_receive(reports), ClientReady):
                raise ChairliftError("a client process of the load tester died while it started")

    def phase(
        self, is_warm_up: bool, num_planned: int, stop: "_StopReason", watch: Watch
    ) -> tuple[list[ClientRecord], list[ClientUsage], str]:
        """Records, usages, and why the phase was stopped."""
        at = monotonic() + _LEAD_S
        progress = RunProgress(num_planned, is_warm_up)
        self._tell(Begin(is_warm_up, at))
        usages: list[ClientUsage] = []
        reachability = _Reachability(self._load)
        busy, is_told = dict(enumerate(self._reports)), False
        while busy:
            for number, message in _received(busy):
                if isinstance(message, ClientProgress):
                    progress.add(number, message)
                    reachability.note(message.records)
                    continue
                del busy[number]
                if isinstance(message, ClientUsage):
                    usages.append(message)
                else:
                    stop.reason = stop.reason or "a client process died with its requests"
            stop.reason = stop.reason or reachability.verdict()
            if stop.reason and not is_told:
                self._tell(Stop())
                is_told = True
            progress.seconds = max(0.0, monotonic() - at)
            watch(progress)
        return progress.records, usages, stop.reason

    def _tell(self, message: Begin | Stop) -> None:
        for commands in self._commands:
            with suppress(BrokenPipeError):
                commands.send(message)


def _received(busy: dict[int, Pipe]) -> list[tuple[int, Any]]:
    """Reports of the busy clients by number; None from one that is gone."""
    ready = wait(busy.values(), timeout=_TURN_S)
    return [(number, _receive(pipe)) for number, pipe in busy.items() if pipe in ready]


def _start(number: int, stack: ExitStack) -> tuple[Pipe, Pipe]:
    """Our ends of the pipes for commands and for reports."""
    their_commands, commands = _spawn.Pipe(duplex=False)
    reports, their_reports = _spawn.Pipe(duplex=False)
    args = (their_commands, their_reports)
    process = _spawn.Process(target=client.main, args=args, name=f"client {number}", daemon=True)
    process.start()
    their_commands.close()
    their_reports.close()
    stack.callback(process.join)
    stack.callback(reports.close)
    stack.callback(commands.close)  # ends the process
    return commands, reports


def _share(load: LoadPlan, number: int) -> LoadPlan:
    """Every n-th request, so that a share arrives at the pace of the whole."""
    num = load.num_clients
    return replace(
        load,
        requests=load.requests[number::num],
        warm_up=load.warm_up[number::num],
        concurrency=load.concurrency // num + (number < load.concurrency % num),
    )


def _receive(pipe: Pipe) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError):
        return None


class _Reachability:
    """Watches for a server that no longer accepts connections."""

    def __init__(self, load: LoadPlan) -> None:
        self._peer = (load.peer, load.target.address.port)
        self._since: float | None = None

    def note(self, records: list[ClientRecord]) -> None:
        if self._since is None and any(record.is_unreachable for record in records):
            self._since = monotonic()

    def verdict(self) -> str:
        """Why to stop; empty while the server accepts connections or may do so again."""
        if self._since is None:
            return ""
        try:
            socket.create_connection(self._peer, timeout=_TURN_S).close()
        except OSError:
            is_gone = monotonic() - self._since > GONE_AFTER_S
            return f"the server accepted no connection for {GONE_AFTER_S:g} s" if is_gone else ""
        self._since = None
        return ""


class _StopReason:
    reason = ""

    def interrupt(self, _: int, frame: FrameType | None) -> None:
        """The first Ctrl-C stops the run, the second aborts it."""
        if self.reason:
            raise KeyboardInterrupt
        self.reason = INTERRUPTED


@contextmanager
def _on_interrupt(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
