"""The response to a scrape: the metrics of all processes, added up, in Prometheus' text format.

Always: a value that is not a number is unknown, and left out. An engine of another machine without gauges is gone, and
its counters are left out too; the server's own are started again.
"""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

from chairlift.telemetry.metrics.derived import derived
from chairlift.telemetry.metrics.parent import own_engines
from chairlift.telemetry.metrics.processes import processes
from chairlift.telemetry.metrics.vllm import as_vllm

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def exposition(folder: Path, vllm_model: str | None = None) -> bytes:
    """`vllm_model`: the model's name, if vLLM's series are wanted too."""
    # A process that has just begun, or was killed just then, may have an empty file.
    files = [str(path) for path in sorted(folder.glob("*.db")) if path.stat().st_size]
    merged: list[Metric] = list(MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]
    metrics = _known(merged, own_engines(folder))
    metrics += derived(metrics)
    if vllm_model is not None:
        metrics += as_vllm(metrics, vllm_model)
    metrics += processes(folder)
    registry: Any = SimpleNamespace(collect=lambda: metrics)
    return generate_latest(registry)


def _known(metrics: list[Metric], own: set[str]) -> list[Metric]:
    there = {sample.labels["replica"] for metric in metrics for sample in metric.samples if _tells_replica(sample)}
    shown = {"", *own, *there}
    for metric in metrics:
        metric.samples = [
            sample
            for sample in metric.samples
            if not math.isnan(sample.value) and sample.labels.get("replica", "") in shown
        ]
    return [metric for metric in metrics if metric.samples]


def _tells_replica(sample: Sample) -> bool:
    return sample.name == "chairlift_replica_requests" and not math.isnan(sample.value)
