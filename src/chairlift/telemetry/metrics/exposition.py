"""The response to a scrape: the metrics of all processes, added up, in Prometheus' text format.

Always: a value that is not a number is unknown, and its series is left out.
"""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from chairlift.telemetry.metrics.derived import derived
from chairlift.telemetry.metrics.processes import processes
from chairlift.telemetry.metrics.vllm import as_vllm

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def exposition(folder: Path, vllm_model: str | None = None) -> bytes:
    """`vllm_model`: the model's name, if vLLM's series are wanted too."""
    # A process that has just begun, or was killed just then, may have an empty file.
    files = [str(path) for path in sorted(folder.glob("*.db")) if path.stat().st_size]
    merged: list[Metric] = list(MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]
    metrics = [metric for metric in merged if not any(math.isnan(sample.value) for sample in metric.samples)]
    metrics += derived(metrics)
    if vllm_model is not None:
        metrics += as_vllm(metrics, vllm_model)
    metrics += processes(folder)
    registry: Any = SimpleNamespace(collect=lambda: metrics)
    return generate_latest(registry)
