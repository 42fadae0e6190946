"""The parent's metrics: restarts, and requests lost with a front end."""

import platform
from pathlib import Path

from chairlift.config.version import VERSION
from chairlift.telemetry.metrics.store import Store, forget


def engine_role(replica: int) -> str:
    return f"engine-{replica}" if replica else "engine"


def own_engines(folder: Path) -> set[str]:
    """The numbers of this server's own engines, dead or alive."""
    first = engine_role(0)
    return {path.stem.removeprefix(first).removeprefix("-") or "0" for path in folder.glob(f"{first}*.pid")}


def front_end_role(index: int) -> str:
    return f"front-end-{index}"


class ParentMetrics:
    def __init__(self, folder: Path, model: str) -> None:
        self._folder = folder
        self._store = Store(folder, "parent")
        self._engine_restarts = self._store.counter("chairlift_engine_restarts_total")
        self._front_end_restarts = self._store.counter("chairlift_front_end_restarts_total")
        self._store.gauge("chairlift_build_info", VERSION, model, platform.python_version()).set(1)

    def engine_starts_again(self, replica: int) -> None:
        forget(self._folder, engine_role(replica))
        self._engine_restarts.add()
        self._store.flush()

    def front_end_starts_again(self, index: int, num_lost: int) -> None:
        """It died with `num_lost` requests in flight."""
        forget(self._folder, front_end_role(index))
        self._front_end_restarts.add()
        self._store.counter("chairlift_requests_total", "", "failed", "front_end_died").add(num_lost)
        self._store.flush()
