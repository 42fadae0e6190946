"""How much an engine has still to compute before its requests decode: the queue that a new request waits for.

In tokens, long prompts counting for more (`work` in `replicas.py`).
"""

from collections.abc import Container, Sequence

from chairlift.core.events import Admitted, Computed, Event, Finished, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.ports import Unobserved
from chairlift.core.request import Request
from chairlift.core.routing.replicas import work


class QueuedWork(Unobserved):
    """An engine's observer."""

    def __init__(self) -> None:
        self.amount = 0
        self._left: dict[RequestId, int] = {}  # of requests that do not decode yet

    def is_all_of(self, requests: Container[RequestId]) -> bool:
        """Whether no other requests than these have something left."""
        return all(request in requests for request in self._left)

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        lead = samples[0]  # the others share its prompt
        self._change(lead.id, work(len(lead.prompt) + len(lead.output)) - work(lead.num_moved))

    def happened(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Token | Finished):  # most are tokens
                if event.request in self._left:
                    self._change(event.request, -self._left[event.request])
            elif isinstance(event, Admitted):
                self._change(event.request, -work(event.num_cached))
            elif isinstance(event, Computed):
                self._change(event.request, work(event.start) - work(event.start + event.num_tokens))
            elif isinstance(event, Preempted) and not event.is_swapped:
                self._change(event.request, work(event.num_computed))

    def _change(self, request: RequestId, by: int) -> None:
        before = self._left.pop(request, 0)
        left = max(0, before + by)
        self.amount += left - before
        if left:
            self._left[request] = left
