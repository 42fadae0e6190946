"""One process's metrics, in files that every front end can read.

Always: a folder holds a few small mapped files for each role ("engine", "front-end-0", ...), and at most one process
has a role at a time. A restarted process goes on with the files of its role, so no counter goes back; its gauges are
cleared when it dies. Values are kept in plain numbers until `flush`: a killed process loses a tenth of a second.
"""

import os
from bisect import bisect_left
from operator import add, sub
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.values import MultiProcessValue

from chairlift.telemetry.log_lines import num_dropped
from chairlift.telemetry.mapped import make_mapped
from chairlift.telemetry.metrics.figures import Counts
from chairlift.telemetry.metrics.series import SERIES

M = TypeVar("M", bound=MetricWrapperBase)
FLUSH_S = 0.1
_GAUGES = "gauge_livesum"
# More than all series take, labels included: the library grows a full file without allocating it on the disk.
_SIZES = {"counter": 2**18, "histogram": 2**18, _GAUGES: 2**16}
_LENGTH_BYTES = 8  # at a file's start: the length in use
_PID_BYTES = 20


class _Histogram(Histogram):
    """Takes many observations at once."""

    def take(self, counts: list[int], total: float) -> None:
        """`counts` has one number for each bucket."""
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)


class BufferedCounter:
    """A counter; `add` is cheap, and shows after `flush`."""

    __slots__ = ("_counter", "_new", "_shown")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._new = 0.0
        self._shown = 0.0  # of this process

    @property
    def total(self) -> float:
        """Counted by this process."""
        return self._shown + self._new

    def add(self, count: float = 1) -> None:
        self._new += count

    def flush(self) -> None:
        if self._new:
            self._counter.inc(self._new)
            self._shown += self._new
            self._new = 0.0


class BufferedHistogram:
    """A histogram; `add` is cheap, and shows after `flush`."""

    __slots__ = ("_bounds", "_counts", "_histogram", "_is_new", "_shown", "_total")

    def __init__(self, histogram: _Histogram, bounds: tuple[float, ...]) -> None:
        self._histogram = histogram
        self._bounds = bounds
        self._shown = Counts([0] * (len(bounds) + 1), 0.0)  # of this process
        self._counts = list(self._shown.buckets)  # the last: above all bounds
        self._total = 0.0
        self._is_new = False

    def add(self, value: float, count: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += count
        self._total += value * count
        self._is_new = True

    def take(self, now: Counts, before: Counts | None) -> None:
        """What another process has counted between the two; nothing where it has other buckets."""
        before = before or Counts([0] * len(self._counts), 0.0)
        if len(now.buckets) == len(before.buckets) == len(self._counts):
            self._counts = list(map(add, self._counts, map(sub, now.buckets, before.buckets)))
            self._total += now.total - before.total
            self._is_new = True

    def counts(self) -> Counts:
        """By this process."""
        shown = self._shown
        if not self._is_new:
            return shown
        return Counts(list(map(add, shown.buckets, self._counts)), shown.total + self._total)

    def flush(self) -> None:
        if self._is_new:
            self._shown = self.counts()
            self._histogram.take(self._counts, self._total)
            self._clear()

    def _clear(self) -> None:
        self._counts = [0] * len(self._counts)
        self._total = 0.0
        self._is_new = False


class Store:
    """Made once in a process, which has the role from then on."""

    def __init__(self, folder: Path, role: str) -> None:
        # The library reads both whenever a value is made.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        values.ValueClass = MultiProcessValue(lambda: role)  # type: ignore[no-untyped-call]
        for kind, size in _SIZES.items():
            make_mapped(folder / f"{kind}_{role}.db", size)
        make_mapped(pid_file(folder, role), _PID_BYTES)
        _write(pid_file(folder, role), str(os.getpid()).encode().ljust(_PID_BYTES))
        self._registry = CollectorRegistry()
        self._made: dict[str, MetricWrapperBase] = {}
        self._counters: dict[tuple[str, ...], BufferedCounter] = {}
        self._histograms: dict[tuple[str, ...], BufferedHistogram] = {}
        self._dropped = self.counter("chairlift_log_lines_dropped_total")

    def counter(self, name: str, *labels: str) -> BufferedCounter:
        if (name, *labels) not in self._counters:
            counter = self._metric(Counter, name, labels)
            self._counters[name, *labels] = BufferedCounter(counter)
        return self._counters[name, *labels]

    def histogram(self, name: str, *labels: str) -> BufferedHistogram:
        if (name, *labels) not in self._histograms:
            bounds = SERIES[name].bounds
            histogram = self._metric(_Histogram, name, labels, buckets=bounds)
            self._histograms[name, *labels] = BufferedHistogram(histogram, bounds)
        return self._histograms[name, *labels]

    def gauge(self, name: str, *labels: str) -> Gauge:
        """Setting it shows at once."""
        return self._metric(Gauge, name, labels, multiprocess_mode="livesum")

    def flush(self) -> None:
        self._dropped.add(num_dropped() - self._dropped.total)
        for counter in self._counters.values():
            counter.flush()
        for histogram in self._histograms.values():
            histogram.flush()

    def _metric(self, kind: type[M], name: str, labels: tuple[str, ...], **options: Any) -> M:
        if name not in self._made:
            series = SERIES[name]
            self._made[name] = kind(name, series.help, series.labels, registry=self._registry, **options)
        made = self._made[name]
        assert isinstance(made, kind)
        return made.labels(*labels) if labels else made


def forget(folder: Path, role: str) -> None:
    """Clears the gauges of a role whose process is gone. Files stay: the disk may be full."""
    if pid_file(folder, role).exists():
        _write(pid_file(folder, role), bytes(_PID_BYTES))
        _write(folder / f"{_GAUGES}_{role}.db", bytes(_LENGTH_BYTES))


def _write(path: Path, start: bytes) -> None:
    """Overwrites the beginning; the rest stays."""
    with path.open("r+b") as file:
        file.write(start)


def pid_file(folder: Path, role: str) -> Path:
    return folder / f"{role}.pid"
