"""The progress of a run, shown as it runs: one updating line on a terminal, a line every few seconds elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, field
from shutil import get_terminal_size
from time import monotonic
from typing import TextIO

from chairlift.lab.bench.messages import ClientProgress
from chairlift.lab.bench.record import ClientRecord, Ending


@dataclass(slots=True)
class RunProgress:
    """The progress of a run: the client processes' reports so far, added up."""

    num_planned: int
    is_warm_up: bool = False
    seconds: float = 0.0  # since the start
    records: list[ClientRecord] = field(default_factory=list)  # in the order in which they ended
    counts: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    latest: dict[int, ClientProgress] = field(default_factory=dict)  # of each client process

    def add(self, client: int, progress: ClientProgress) -> None:
        self.latest[client] = progress
        self.records += progress.records
        for record in progress.records:
            self.counts[record.ending] += 1

    @property
    def num_waiting(self) -> int:
        return sum(progress.num_waiting for progress in self.latest.values())

    @property
    def num_running(self) -> int:
        return sum(progress.num_running for progress in self.latest.values())

    @property
    def num_chunks(self) -> int:
        return sum(progress.num_chunks for progress in self.latest.values())


PLAIN_EVERY_S = 5.0


class Display:
    def __init__(self, out: TextIO, clock: Callable[[], float] = monotonic) -> None:
        self._out = out
        self._clock = clock
        self._is_live = out.isatty()
        self._next = 0.0
        self._width = 0
        self._chunks: list[tuple[float, int]] = []  # of the last second

    def show(self, progress: RunProgress) -> None:
        now = self._clock()
        self._chunks = [mark for mark in self._chunks if now - mark[0] < 1.0] + [(now, progress.num_chunks)]
        if not self._is_live:
            self._next = self._next or now + PLAIN_EVERY_S
            if now >= self._next:
                self._next = now + PLAIN_EVERY_S
                print(self._line(progress), file=self._out, flush=True)
            return
        line = self._line(progress)[: get_terminal_size().columns - 1]
        self._out.write("\r" + line.ljust(self._width))
        self._out.flush()
        self._width = len(line)

    def close(self) -> None:
        if self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._out.flush()

    def _line(self, progress: RunProgress) -> str:
        counts = progress.counts
        num_ended = sum(counts.values())
        what = "warm-up" if progress.is_warm_up else "bench"
        lost = "".join(f", {counts[e]} {e}" for e in (Ending.SHORT, Ending.FAILED) if counts[e])
        return (
            f"{what} {progress.seconds:.1f} s: {num_ended}/{progress.num_planned} ended{lost}; "
            f"{progress.num_running} running, {progress.num_waiting} waiting; {self._rate():.0f} chunks/s"
        )

    def _rate(self) -> float:
        (first, before), (last, after) = self._chunks[0], self._chunks[-1]
        return max(0.0, (after - before) / (last - first)) if last > first else 0.0
