"""An engine whose every step is computed twice: with layers in groups that release what lies behind their windows, and
with a cache in which every layer keeps all tokens. The logits must be the same to the last bit.

Pages that are blank hold NaNs, and so does all that tables list outside of what a chunk may touch.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from chairlift.core.events import Event
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.scheduling.preemption import Preemption
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.kv_groups import kv_groups
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.hooks import LogitsHook
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch import batching
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.model_world import SHAPE, Arrivals, drive

WINDOW = 9


def windowed(kinds: str, window: int = WINDOW, **changes: Any) -> ModelConfig:
    """A layer for each letter; w: with a window."""
    config = uniform_model(**{**SHAPE, "num_layers": len(kinds), **changes})
    layers = [
        replace(layer, attention=replace(layer.attention, window=window * (kind == "w")))
        for kind, layer in zip(kinds, config.layers, strict=True)
    ]
    return replace(config, layers=tuple(layers))


def grouped_limits(config: ModelConfig, limits: Limits) -> Limits:
    groups = kv_groups(config)
    return replace(limits, window=groups.window, num_window_groups=groups.num_window_groups)


class Recording(Runner):
    """A runner with a hook for logits."""

    on_logits: LogitsHook | None


class BothWays:
    """A runner: of a cache with groups, and of one without."""

    def __init__(self, grouped: Recording, plain: Recording, kv: KvCache, scheduler: Scheduler) -> None:
        self._runners = (grouped, plain)
        self._kv = kv
        self._scheduler = scheduler
        self.num_compared = 0
        self._rows: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for runner, rows in zip(self._runners, self._rows, strict=True):
            runner.on_logits = lambda ids, positions, logits, rows=rows: rows.append(logits.clone())  # type: ignore[misc]

    @property
    def depth(self) -> int:
        return 1

    def submit(self, plan: StepPlan) -> None:
        self._poison(plan)
        grouped, plain = self._runners
        grouped.submit(plan)
        plain.submit(plan._replace(window_tables=()))

    def _poison(self, plan: StepPlan) -> None:
        """Pages that are blank, less those that the plan swaps out first, and the last page, which is no request's."""
        blank = set(self._scheduler.pool._blank) - {source for source, _ in plan.swap_outs}
        pages = torch.tensor([*blank, self._scheduler.pool.num_blocks], device=self._kv.tokens.device)
        for memory in {id(m): m for m in (*self._kv.keys, *self._kv.values)}.values():
            memory[pages] = torch.nan

    def collect(self) -> StepResult:
        result, plain = (runner.collect() for runner in self._runners)
        assert result.tokens == plain.tokens
        for one, other in zip(*self._rows, strict=True):
            assert not one.isnan().any(), "a page was read that is not the request's"
            assert torch.equal(one, other)
            self.num_compared += len(one)
        for rows in self._rows:
            rows.clear()
        return result


def poison_tables(monkeypatch: pytest.MonkeyPatch, nowhere: int) -> None:
    """Entries that no chunk may use are a page of NaNs."""
    make = batching._window_tables

    def poisoned(plan: StepPlan, size: int, window: int, num: int) -> NDArray[np.int32]:
        tables = make(plan, size, window, num)
        for row, chunk in enumerate(plan.chunks):
            low, high = max(0, chunk.start - window + 1) // size, -(-(chunk.start + chunk.count) // size)
            tables[:, row, :low] = tables[:, row, high:] = nowhere
        return tables

    monkeypatch.setattr(batching, "_window_tables", poisoned)


def run_both_ways(
    runners: tuple[Recording, Recording], kv: KvCache, scheduler: Scheduler, arrivals: Arrivals
) -> Counter[type[Event] | str]:
    """How often each kind of event came, as `drive` has it; "compared": rows of logits."""
    runner = BothWays(*runners, kv, scheduler)
    _, kinds = drive(scheduler, runner, arrivals)
    kinds["compared"] = runner.num_compared
    return kinds


def make_scheduler(limits: Limits, preemption: Preemption, has_prefix_index: bool = True) -> Scheduler:
    """has_prefix_index: released pages may stay as they are; else they are blank at once."""
    return Scheduler(limits, Fcfs(), preemption=preemption, has_prefix_index=has_prefix_index)


def cuda_runners(
    config: ModelConfig, limits: Limits, dtype: torch.dtype, device: torch.device, num_host_blocks: int, exact: bool
) -> tuple[tuple[Any, Any], KvCache]:
    """CUDA runners with groups and without, and the cache of the first; tables on the device begin with NaNs."""
    from chairlift.runner.cuda.ops import CudaOps
    from chairlift.runner.cuda.runner import CudaRunner

    runners, caches = [], []
    for groups in (kv_groups(config), None):
        model = build_model(config, CudaOps(exact=exact), DummyTensors(config), dtype, device, config.max_model_len)
        kv = KvCache(config, limits.num_blocks + 1, limits.block_size, dtype, device, num_host_blocks, groups)
        own = limits if groups else replace(limits, window=0, num_window_groups=0)
        runner = CudaRunner(model, kv, device, own, exact=exact)
        for tables in runner.device._memory.window_tables:  # type: ignore[union-attr]
            tables.fill_(limits.num_blocks)
        runners.append(runner)
        caches.append(kv)
    return (runners[0], runners[1]), caches[0]
