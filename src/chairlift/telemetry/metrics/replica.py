"""The series of one replica, which have its number as a label.

Always: those of a replica that is gone are left out of a scrape, as its gauges are no numbers (`gone`); a later one
with its number goes on with its counters.
"""

import math

from chairlift.telemetry.metrics.figures import Figures
from chairlift.telemetry.metrics.store import Store

_COUNTERS = {
    "prompt_tokens": "chairlift_replica_prompt_tokens_total",
    "cached_tokens": "chairlift_replica_prompt_tokens_cached_total",
    "generated_tokens": "chairlift_replica_generated_tokens_total",
    "moved_in": "chairlift_replica_requests_moved_total",
}


class ReplicaSeries:
    def __init__(self, store: Store, replica: int) -> None:
        label = str(replica)
        self._running = store.gauge("chairlift_replica_requests", label, "running")
        self._waiting = store.gauge("chairlift_replica_requests", label, "waiting")
        self._queued = store.gauge("chairlift_replica_queued_tokens", label)
        self._held = store.gauge("chairlift_replica_kv_held_ratio", label)
        self._draining = store.gauge("chairlift_replica_draining", label)
        self._counters = {field: store.counter(name, label) for field, name in _COUNTERS.items()}

    def show(self, figures: Figures, before: Figures) -> None:
        """`before`: what was shown last of its counters."""
        self._running.set(figures.running)
        self._waiting.set(figures.waiting + figures.preempted)
        self._queued.set(figures.queued_tokens)
        self._held.set(figures.held_ratio)
        self._draining.set(figures.is_draining)
        for field, counter in self._counters.items():
            counter.add(getattr(figures, field) - getattr(before, field))

    def gone(self) -> None:
        for gauge in (self._running, self._waiting, self._queued, self._held, self._draining):
            gauge.set(math.nan)
