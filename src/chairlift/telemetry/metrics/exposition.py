"""The response to a scrape: the metrics of all processes, added up, in Prometheus' text format.

Always: a value that is not a number is unknown, and left out. An engine of another machine without gauges is gone, and
its counters are left out too; the server's own are started again. A ratio is made here, of sums: a sum of ratios is not
right for several engines.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

from chairlift.telemetry.metrics.parent import own_engines
from chairlift.telemetry.metrics.series import SERIES
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


def derived(metrics: Iterable[Metric]) -> Iterator[Metric]:
    samples = {metric.name: metric.samples for metric in metrics}
    capacity = sum(sample.value for sample in samples.get("chairlift_kv_capacity_blocks", ()))
    if capacity:
        blocks = samples.get("chairlift_kv_blocks", ())
        held = sum(sample.value for sample in blocks if sample.labels["state"] == "held")
        series = SERIES["chairlift_kv_held_ratio"]
        metric = Metric(series.name, series.help, series.kind)
        metric.add_sample(series.name, {}, held / capacity)
        yield metric


def processes(folder: Path) -> Iterator[Metric]:
    """The usual `process_*` series, of all processes that have a role in this folder.

    Processor time includes ended ones, so it does not go back. Resident memory is a plain sum: shared memory counts
    once per process.
    """
    cpu_s = rss = virtual = num_fds = 0.0
    max_fds = started = float("inf")
    for path in sorted(folder.glob("*.pid")):
        try:
            process = psutil.Process(int(path.read_text()))
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
                cpu_s += times.user + times.system
                if path.stem == "parent":
                    cpu_s += times.children_user + times.children_system  # of those that have ended
                rss += memory.rss
                virtual += memory.vms
                num_fds += process.num_fds()
                started = min(started, process.create_time())
                max_fds = min(max_fds, process.rlimit(psutil.RLIMIT_NOFILE)[0])
        except (psutil.Error, OSError, ValueError):  # just ended, or just begun
            continue
    if started == float("inf"):
        return
    yield CounterMetricFamily("process_cpu_seconds_total", "Processor time of all processes, ended ones too.", cpu_s)
    yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory, summed over processes.", rss)
    yield GaugeMetricFamily("process_virtual_memory_bytes", "Virtual memory, summed over processes.", virtual)
    yield GaugeMetricFamily("process_open_fds", "Open files, summed over processes.", num_fds)
    yield GaugeMetricFamily("process_max_fds", "The least that one of the processes may open.", max_fds)
    yield GaugeMetricFamily("process_start_time_seconds", "When the first of them started.", started)
