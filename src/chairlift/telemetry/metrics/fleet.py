"""Figures of engines on other machines, from what their nodes tell: the part of `/metrics` of the members' list.

Always: sums over all engines have the names that a server's own engines have, so a scrape adds them up. No counter
goes back when a member leaves, or begins to count anew. What an engine had counted when it was first heard of is left
out: another server may have had it, or the list before this one has counted it.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from chairlift.telemetry.metrics.figures import COUNTERS, GAUGES, HISTOGRAMS, Figures
from chairlift.telemetry.metrics.replica import ReplicaSeries
from chairlift.telemetry.metrics.store import Store, forget

_ROLE = "members"
_NOTHING = Figures()
_NO_COUNTS = [None] * len(HISTOGRAMS)


class FleetMetrics:
    def __init__(self, folder: Path, has_own: bool, reasons: Iterable[str] = ()) -> None:
        """`has_own`: the server has engines itself, which tell the size of blocks. `reasons`: to refuse nodes."""
        forget(folder, _ROLE)
        self._store = Store(folder, _ROLE)
        self._has_own = has_own
        self._gauges = {field: self._store.gauge(*name) for field, name in GAUGES.items()}
        self._counters = {field: self._store.counter(*name) for field, name in COUNTERS.items()}
        self._histograms = [self._store.histogram(*name) for name in HISTOGRAMS]
        self._restarts = self._store.counter("chairlift_engine_restarts_total")
        self._members = self._store.gauge("chairlift_members")
        for reason in reasons:  # from the start, so that their rise shows
            self.refused(reason, 0)
        self._turned_away = 0  # at the list's own port
        self._series: dict[int, ReplicaSeries] = {}
        self._shown: set[int] = set()  # numbers
        self._last: dict[str, Figures] = {}  # what was heard last of each, by address

    def refused(self, reason: str, num_nodes: int = 1) -> None:
        """May not join."""
        self._store.counter("chairlift_joins_refused_total", reason).add(num_nodes)

    def show(self, engines: Mapping[str, Figures], numbers: Mapping[str, int], num_turned_away: int) -> None:
        """All engines that are members now, by address. `numbers`: theirs, and of those that may come back.
        `num_turned_away`: connections to the list itself, so far."""
        self._counters["turned_away"].add(num_turned_away - self._turned_away)
        self._turned_away = num_turned_away
        self._last = {address: figures for address, figures in self._last.items() if address in numbers}
        for address, figures in engines.items():
            self._count(address, numbers[address], figures)
        there = {numbers[address] for address in engines}
        for number in self._shown - there:
            self._series[number].gone()
        self._shown = there
        for field, gauge in self._gauges.items():
            gauge.set(sum(getattr(figures, field) for figures in engines.values()))
        self._members.set(len(engines))
        if not self._has_own:
            size = next((figures.block_size for figures in engines.values()), math.nan)
            self._store.gauge("chairlift_kv_block_size_tokens").set(size)
        self._store.flush()

    def _count(self, address: str, number: int, figures: Figures) -> None:
        before = self._last.get(address, figures)
        if before.born != figures.born:
            before = _NOTHING
            self._restarts.add()
        self._last[address] = figures
        if number not in self._series:
            self._series[number] = ReplicaSeries(self._store, number)
        self._series[number].show(figures, before)
        for field, counter in self._counters.items():
            counter.add(getattr(figures, field) - getattr(before, field))
        pairs = zip(figures.histograms, [*before.histograms, *_NO_COUNTS], strict=False)
        for histogram, (now, old) in zip(self._histograms, pairs, strict=False):
            histogram.take(now, old)
