"""What one of several replicas may use of its machine: GPUs or a part of one, threads, memory.

Always: replicas on one GPU load one after the other, as each measures what those before have left of it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from chairlift.build import ResolvedModel, let_threads_sleep
from chairlift.config.settings import Settings
from chairlift.live.processes.heartbeat import locked
from chairlift.serving.process_setup import RunFolder

_CPU_SHARE = 4  # of free memory, a quarter is for KV blocks, of all replicas together


@contextmanager
def share_of(model: ResolvedModel, folder: RunFolder, replica: int) -> Iterator[ResolvedModel]:
    """The model with the settings of one replica; to be loaded within."""
    settings = model.settings
    if settings.replicas == 1:
        yield model
        return
    gpus = _visible_gpus() if settings.device in ("auto", "cuda") else []
    if not gpus:
        yield model.under(_cpu_share(model))
        return
    groups = _groups(gpus, settings.tensor_parallel)
    group = replica % len(groups)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(groups[group])
    count = len(range(group, settings.replicas, len(groups)))
    with _in_turn(folder.path / f"loaded-{group}") as num_loaded:
        yield model.under(_gpu_share(settings, min(num_loaded + 1, count) / count))


def _visible_gpus() -> list[str]:
    """As `CUDA_VISIBLE_DEVICES` names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    return [str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def _groups(gpus: list[str], num_ranks: int) -> list[list[str]]:
    """The GPUs of one replica each; with fewer than it has ranks, all."""
    each = min(num_ranks, len(gpus))
    return [gpus[first : first + each] for first in range(0, len(gpus) - each + 1, each)]


def _gpu_share(settings: Settings, share: float) -> Settings:
    """`memory` counts what others use too, so the second replica may use the share of two."""
    from chairlift.runner.memory.gpu import SHARE

    return replace(settings, memory=share * (settings.memory or SHARE))


def _cpu_share(model: ResolvedModel) -> Settings:
    let_threads_sleep()
    from chairlift.runner.machine import hardware

    settings, count = model.settings, model.settings.replicas
    threads = settings.threads or hardware.num_cpus() // settings.tensor_parallel
    settings = replace(settings, threads=max(1, threads // count))
    if settings.num_blocks is not None or settings.kv_memory is not None or model.source.is_embedded:
        return settings
    free = hardware.free_memory(hardware.pick_device("cpu"))
    return replace(settings, kv_memory=max(1, free // (_CPU_SHARE * count)))


@contextmanager
def _in_turn(path: Path) -> Iterator[int]:
    """One replica at a time; how many have loaded before."""
    with locked(path) as file:
        num_loaded = int(os.pread(file, 20, 0) or b"0")
        yield num_loaded
        os.pwrite(file, str(num_loaded + 1).encode(), 0)
