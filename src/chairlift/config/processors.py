"""How many processors this process may use, on systems that can say which and on those that cannot."""

import math
import os
from pathlib import Path

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def num_processors() -> int:
    """Hardware threads: those of its affinity, where the system has one, and no more than the container's share."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, _container_share(allowed)))


def _container_share(otherwise: int) -> int:
    """Whole processors of the container's quota, if it has one."""
    try:
        quota, period = _CPU_MAX.read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return otherwise
