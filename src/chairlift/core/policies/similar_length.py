"""Requests of like length together, so that a batch ends at about the same time; none is passed over for ever.

Next is the request closest in length to the last one admitted; after `patience` admissions that passed it over, the
oldest goes first whatever its length.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policies.by_length import check_measure, length_of
from chairlift.core.policy import Standing


class SimilarLength:
    def __init__(self, by: str = "output", patience: int = 64) -> None:
        check_measure(by)
        self._by = by
        self._patience = patience
        self._last = 0
        self._num_passes = 0  # admissions since the oldest became the oldest
        self._lengths: OrderedDict[RequestId, int] = OrderedDict()  # oldest first
        self._groups: dict[int, OrderedDict[RequestId, None]] = {}
        self._known: list[int] = []  # lengths that somebody has, sorted: few, however many wait

    def push(self, standing: Standing, now: float) -> None:
        length = length_of(standing, self._by)
        self._lengths[standing.id] = length
        if length not in self._groups:
            self._groups[length] = OrderedDict()
            insort(self._known, length)
        self._groups[length][standing.id] = None

    def first(self, now: float) -> RequestId | None:
        if not self._lengths:
            return None
        if self._num_passes >= self._patience:
            return next(iter(self._lengths))
        place = bisect_left(self._known, self._last)
        near = self._known[max(0, place - 1) : place + 1]
        return next(iter(self._groups[min(near, key=lambda length: abs(length - self._last))]))

    def remove(self, standing: Standing) -> None:
        is_oldest = next(iter(self._lengths)) == standing.id
        self._num_passes = 0 if is_oldest else self._num_passes + 1
        self._last = length = self._lengths.pop(standing.id)
        del self._groups[length][standing.id]
        if not self._groups[length]:
            del self._groups[length]
            del self._known[bisect_left(self._known, length)]

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The one whose length is furthest from the others': the last admitted."""
        return max(running, key=lambda s: (abs(length_of(s, self._by) - self._last), s.arrival, s.id)).id
