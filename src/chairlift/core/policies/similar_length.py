"""Requests of similar length together, so that a batch ends at about the same time.

Lengths are grouped to an eighth: 64 to 71, 72 to 79, ... 128 to 143, and so on. The oldest request of the group closest
to the last admitted goes next. The oldest of all goes first after `patience` admissions in a row that passed it over.

Bound: a request that finds k waiting is admitted within (k + 1) x (patience + 1) admissions.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policies.rankings import check_measure, length_of
from chairlift.core.policy import Policy, RequestView


class SimilarLength(Policy):
    def __init__(self, by: str = "output", patience: int = 64) -> None:
        check_measure(by)
        if patience < 0:
            raise ValueError("patience must not be negative")
        self._by = by
        self._patience = patience
        self._last = 0
        self._num_passes = 0  # admissions since the oldest became the oldest
        self._waiting: OrderedDict[RequestId, int] = OrderedDict()  # their groups, oldest first
        self._groups: dict[int, OrderedDict[RequestId, None]] = {}
        self._lengths: list[int] = []  # of groups with requests, sorted: at most eight for each power of two

    def _group_of(self, view: RequestView) -> int:
        length = length_of(view, self._by)
        num_dropped = max(0, length.bit_length() - 4)
        return length >> num_dropped << num_dropped

    def push(self, view: RequestView, now: float) -> None:
        length = self._group_of(view)
        self._waiting[view.id] = length
        if length not in self._groups:
            self._groups[length] = OrderedDict()
            insort(self._lengths, length)
        self._groups[length][view.id] = None

    def first(self, now: float) -> RequestId | None:
        if not self._waiting:
            return None
        if self._num_passes >= self._patience:
            return next(iter(self._waiting))
        place = bisect_left(self._lengths, self._last)
        near = self._lengths[max(0, place - 1) : place + 1]
        return next(iter(self._groups[min(near, key=lambda length: abs(length - self._last))]))

    def remove(self, view: RequestView) -> None:
        is_oldest = next(iter(self._waiting)) == view.id
        self._num_passes = 0 if is_oldest else self._num_passes + 1
        self._last = length = self._waiting.pop(view.id)
        del self._groups[length][view.id]
        if not self._groups[length]:
            del self._groups[length]
            del self._lengths[bisect_left(self._lengths, length)]

    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        """The request furthest in length from the last admitted, ties by the newest."""
        return max(running, key=lambda s: (abs(self._group_of(s) - self._last), s.arrival, s.id)).id
