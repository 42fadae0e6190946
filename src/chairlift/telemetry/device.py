"""What the engine's GPU is used for: its busy share, memory and power, for metrics and the live page.

Always: sampled by a thread beside the engine, which neither waits for a sample nor ends with one. What is unknown is
None, and absent from `/metrics`. Does not know which library measures.
"""

import math
import time
from collections.abc import Callable
from threading import Thread

import msgspec
from prometheus_client import Gauge

from chairlift.telemetry.metrics.store import Store

PERIOD_S = 1.0


class DeviceUse(msgspec.Struct, frozen=True):
    """A sample; the fields are named as in metrics."""

    busy_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_capacity_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None


DeviceReader = Callable[[], DeviceUse]


class DeviceSampler:
    def __init__(self, store: Store, find: Callable[[], DeviceReader | None]) -> None:
        """`find` is called in the thread, as it may take a while; None ends it."""
        self.latest: DeviceUse | None = None
        self._store = store
        self._gauges: dict[str, Gauge] = {}  # known so far
        self._find = find

    def start(self) -> None:
        Thread(target=self._run, name="device-sampler", daemon=True).start()

    def _run(self) -> None:
        read = self._find()
        while read is not None:
            self._take(read())
            time.sleep(PERIOD_S)

    def _take(self, use: DeviceUse) -> None:
        for name, value in msgspec.structs.asdict(use).items():
            if value is not None:
                self._gauges[name] = self._store.gauge(f"chairlift_device_{name}")
            if name in self._gauges:
                self._gauges[name].set(math.nan if value is None else value)
        self.latest = use
