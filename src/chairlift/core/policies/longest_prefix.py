"""The longest cached prefix first, before the cache is overwritten.

Only the `window` oldest requests are compared, so that a step costs the same however many wait. The oldest goes first
after `patience` admissions in a row that passed it over.

Bound: a request that finds k waiting is admitted within (k + 1) x (patience + 1) admissions.
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

from chairlift.core.ids import RequestId
from chairlift.core.policy import CacheView, Policy, RequestView


class LongestPrefix(Policy):
    def __init__(self, window: int = 32, patience: int = 64) -> None:
        if window < 1 or patience < 0:
            raise ValueError("window must be at least 1, patience not negative")
        self._window = window
        self._patience = patience
        self._queue: OrderedDict[RequestId, RequestView] = OrderedDict()  # oldest first
        self._num_passes = 0  # admissions since the oldest became the oldest
        self._cache: CacheView | None = None
        self._chosen: RequestId | None = None  # kept while it waits for memory, so that a step costs nothing

    def watch(self, cache: CacheView) -> None:
        self._cache = cache

    def push(self, view: RequestView, now: float) -> None:
        self._queue[view.id] = view
        if len(self._queue) <= self._window:
            self._chosen = None

    def first(self, now: float) -> RequestId | None:
        if self._chosen is None and self._queue:
            self._chosen = self._choose()
        return self._chosen

    def _choose(self) -> RequestId:
        if self._cache is None or self._num_passes >= self._patience:
            return next(iter(self._queue))
        oldest = list(islice(self._queue.values(), self._window))
        return max(oldest, key=self._cache.num_cached).id  # of equals, the first

    def remove(self, view: RequestView) -> None:
        is_oldest = next(iter(self._queue)) == view.id
        self._num_passes = 0 if is_oldest else self._num_passes + 1
        self._chosen = None
        del self._queue[view.id]

    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        return max(running, key=lambda view: (view.arrival, view.id)).id
