"""One process's figures, kept where every front end can read them.

Always: a folder holds a few small mapped files for each role ("engine", "front-end-0", ...), and at most one process
has a role at a time. Who takes a role over goes on with its files, so no count goes back when a process is started
again; its gauges are cleared when it dies. What is added is kept in plain numbers until `flush`: a process that is
killed takes with it what came since, a tenth of a second at most.
"""

import os
from bisect import bisect_left
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.values import MultiProcessValue

from chairlift.telemetry.mapped import make_mapped
from chairlift.telemetry.metrics.series import SERIES

FLUSH_S = 0.1
_GAUGES = "gauge_livesum"
# More than all series take, labels included: the library lets a file that is full grow without a place on the disk.
_SIZES = {"counter": 2**18, "histogram": 2**18, _GAUGES: 2**16}
_LENGTH_BYTES = 8  # at a file's start: how much of it is used
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

    __slots__ = ("_counter", "_new")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._new = 0

    def add(self, count: int = 1) -> None:
        self._new += count

    def flush(self) -> None:
        if self._new:
            self._counter.inc(self._new)
            self._new = 0


class BufferedHistogram:
    """A histogram; `add` is cheap, and shows after `flush`."""

    __slots__ = ("_bounds", "_counts", "_histogram", "_is_new", "_total")

    def __init__(self, histogram: _Histogram, bounds: tuple[float, ...]) -> None:
        self._histogram = histogram
        self._bounds = bounds
        self._clear()

    def add(self, value: float, count: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += count
        self._total += value * count
        self._is_new = True

    def flush(self) -> None:
        if self._is_new:
            self._histogram.take(self._counts, self._total)
            self._clear()

    def _clear(self) -> None:
        self._counts = [0] * (len(self._bounds) + 1)  # the last: above all bounds
        self._total = 0.0
        self._is_new = False


class Store:
    """To be made once in a process, which has the role from then on."""

    def __init__(self, folder: Path, role: str) -> None:
        # The library asks for both whenever a value is made.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        values.ValueClass = MultiProcessValue(lambda: role)  # type: ignore[no-untyped-call]
        for kind, size in _SIZES.items():
            make_mapped(folder / f"{kind}_{role}.db", size)
        make_mapped(pid_file(folder, role), _PID_BYTES)
        _write(pid_file(folder, role), str(os.getpid()).encode().ljust(_PID_BYTES))
        self._registry = CollectorRegistry()
        self._made: dict[str, Counter | Gauge | _Histogram] = {}
        self._added: dict[tuple[str, ...], BufferedCounter | BufferedHistogram] = {}

    def counter(self, name: str, *labels: str) -> BufferedCounter:
        made = self._added.get((name, *labels))
        if made is None:
            counter = self._metric(name)
            assert isinstance(counter, Counter)
            made = self._added[name, *labels] = BufferedCounter(counter.labels(*labels) if labels else counter)
        assert isinstance(made, BufferedCounter)
        return made

    def histogram(self, name: str, *labels: str) -> BufferedHistogram:
        made = self._added.get((name, *labels))
        if made is None:
            histogram = self._metric(name)
            assert isinstance(histogram, _Histogram)
            histogram = histogram.labels(*labels) if labels else histogram
            made = self._added[name, *labels] = BufferedHistogram(histogram, SERIES[name].bounds)
        assert isinstance(made, BufferedHistogram)
        return made

    def gauge(self, name: str, *labels: str) -> Gauge:
        """Setting it shows at once."""
        gauge = self._metric(name)
        assert isinstance(gauge, Gauge)
        return gauge.labels(*labels) if labels else gauge

    def flush(self) -> None:
        for added in self._added.values():
            added.flush()

    def _metric(self, name: str) -> Counter | Gauge | _Histogram:
        made = self._made.get(name)
        if made is None:
            series, to = SERIES[name], self._registry
            match series.kind:
                case "counter":
                    made = Counter(name, series.help, series.labels, registry=to)
                case "gauge":
                    made = Gauge(name, series.help, series.labels, registry=to, multiprocess_mode="livesum")
                case "histogram":
                    made = _Histogram(name, series.help, series.labels, registry=to, buckets=series.bounds)
            self._made[name] = made
        return made


def forget(folder: Path, role: str) -> None:
    """Whoever had this role is gone, and so is what its gauges showed. Files stay: there may be no room for others."""
    if pid_file(folder, role).exists():
        _write(pid_file(folder, role), bytes(_PID_BYTES))
        _write(folder / f"{_GAUGES}_{role}.db", bytes(_LENGTH_BYTES))


def _write(path: Path, start: bytes) -> None:
    """The rest stays."""
    with path.open("r+b") as file:
        file.write(start)


def pid_file(folder: Path, role: str) -> Path:
    return folder / f"{role}.pid"
