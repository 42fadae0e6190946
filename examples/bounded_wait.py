"""A scheduling policy of your own on top of a built-in one: the shortest first, but no request waits for ever.

    chairlift serve --policy examples.bounded_wait:BoundedWait:max_wait=10

`Ranked` keeps the order; `first` puts the request that waits longest before it. docs/add-a-policy.md says more.

Bound: after `max_wait` seconds only requests that began to wait earlier are admitted before a request.
"""

from collections import OrderedDict

from chairlift.core.ids import RequestId
from chairlift.core.policies.rankings import ShortestFirst
from chairlift.core.policy import RequestView


class BoundedWait(ShortestFirst):
    def __init__(self, max_wait: float = 30.0) -> None:
        super().__init__()
        if max_wait < 0:
            raise ValueError("max_wait must not be negative")
        self._max_wait = max_wait
        self._since: OrderedDict[RequestId, float] = OrderedDict()  # when requests began to wait, oldest first

    def push(self, view: RequestView, now: float) -> None:
        super().push(view, now)
        self._since[view.id] = now

    def first(self, now: float) -> RequestId | None:
        oldest = next(iter(self._since), None)
        is_due = oldest is not None and now - self._since[oldest] >= self._max_wait
        return oldest if is_due else super().first(now)

    def remove(self, view: RequestView) -> None:
        super().remove(view)
        del self._since[view.id]
