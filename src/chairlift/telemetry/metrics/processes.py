"""The usual `process_*` series, of all processes of the server together.

Always: `process_cpu_seconds_total` includes ended processes, so it does not go back. Resident memory is a plain sum:
shared memory counts once per process.
"""

from collections.abc import Iterator
from pathlib import Path

import psutil
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric


def processes(folder: Path) -> Iterator[Metric]:
    """Of the processes that have a role in this folder."""
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
