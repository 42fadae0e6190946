"""A runner that computes every step twice: with layers in groups that release what lies behind their windows, and with
a cache in which every layer keeps all tokens. The logits must be the same to the last bit.

Pages that are blank hold NaNs, and so does all that tables list outside of what a chunk may touch.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from chairlift.core.ids import BlockId
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Kind
from chairlift.core.plan import Chunk, StepPlan, StepResult
from chairlift.core.ports import Runner
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.kv_groups import KvGroups, kv_groups
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.hooks import LogitsHook
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch import batching
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.worlds.models import SHAPE
from fakes.worlds.world import World

WINDOW = 9
NOTHING: Mapping[str, Any] = {}


def windowed(kinds: str, window: int = WINDOW, full: Mapping[str, Any] = NOTHING, **changes: Any) -> ModelConfig:
    """A layer for each letter; w: with a window; s: with a window and the keys and values of the w before it. full: of
    the others' attention."""
    config = uniform_model(**{**SHAPE, "num_layers": len(kinds), **changes})
    layers = [
        replace(
            layer,
            mixer=replace(
                layer.attention,
                window=window * (kind in "ws"),
                has_own_rows=kind != "s",
                **({} if kind in "ws" else full),
            ),
        )
        for kind, layer in zip(kinds, config.layers, strict=True)
    ]
    return replace(config, layers=tuple(layers))


def grouped_limits(config: ModelConfig, limits: Limits) -> Limits:
    return replace(limits, groups=kv_groups(config).declared)


class Recording(Runner):
    """A runner with a hook for logits."""

    on_logits: LogitsHook | None


MakeOne = Callable[[Limits, KvCache], Recording]


class BothWays:
    """Drive its worlds: tokens are compared in each step. `world.counts`: "compared" rows of logits."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device, make_one: MakeOne) -> None:
        self._config, self._dtype, self._device, self._make_one = config, dtype, device, make_one

    def make(self, world: World) -> Runner:
        limits = world.limits
        plain = replace(limits, groups=())
        caches = self._cache(world, kv_groups(self._config)), self._cache(world, None)
        runners = self._make_one(limits, caches[0]), self._make_one(plain, caches[1])
        return _Both(runners, caches[0], world.scheduler, world.counts)

    def _cache(self, world: World, groups: KvGroups | None) -> KvCache:
        num_blocks, num_host_blocks = world.limits.num_blocks + 1, world.preemption.num_host_blocks
        size = world.limits.block_size
        return KvCache(self._config, num_blocks, size, self._dtype, self._device, num_host_blocks, groups)


class _Both:
    """A runner: of a cache with groups, and of one without."""

    depth = 1

    def __init__(
        self, runners: tuple[Recording, Recording], kv: KvCache, scheduler: Scheduler, counts: Counter[str]
    ) -> None:
        self._runners, self._kv, self._scheduler, self._counts = runners, kv, scheduler, counts
        self._rows: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for runner, rows in zip(self._runners, self._rows, strict=True):
            runner.on_logits = lambda ids, positions, logits, rows=rows: rows.append(logits.clone())  # type: ignore[misc]

    def submit(self, plan: StepPlan) -> None:
        self._poison(plan)
        grouped, plain = self._runners
        grouped.submit(plan)
        plain.submit(plan._replace(chunks=tuple(chunk._replace(tables=chunk.tables[:1]) for chunk in plan.chunks)))

    def _poison(self, plan: StepPlan) -> None:
        """Pages that are blank, less those that the plan swaps out first, and the last page, which is no request's."""
        blank = set(self._scheduler.pool._blank) - {source for source, _ in plan.swap_outs}
        pages = torch.tensor([*blank, self._scheduler.pool.num_blocks], device=self._kv.tokens.device)
        for memory in self._kv._memory[:-1]:
            memory[pages] = torch.nan

    def collect(self) -> StepResult:
        result, plain = (runner.collect() for runner in self._runners)
        assert result.tokens == plain.tokens
        for one, other in zip(*self._rows, strict=True):
            assert not one.isnan().any(), "a page was read that is not the request's"
            assert torch.equal(one, other)
            self._counts["compared"] += len(one)
        for rows in self._rows:
            rows.clear()
        return result


def poison_tables(monkeypatch: pytest.MonkeyPatch, nowhere: int) -> None:
    """Entries that no chunk may use are a page of NaNs."""
    make = batching._tables_of

    def poisoned(kind: Kind, listed: Sequence[Sequence[BlockId]], chunks: Sequence[Chunk]) -> NDArray[np.int32]:
        tables = make(kind, listed, chunks)
        for row, chunk in enumerate(chunks):
            low, high = kind.num_behind(chunk.start), -(-(chunk.start + chunk.count) // kind.block_size)
            tables[:, row, :low] = tables[:, row, high:] = nowhere
        return tables

    monkeypatch.setattr(batching, "_tables_of", poisoned)


def on_cuda(config: ModelConfig, dtype: torch.dtype, device: torch.device, exact: bool) -> BothWays:
    """By the CUDA runner, whose tables on the device begin with NaNs."""
    from chairlift.runner.cuda.ops import CudaOps
    from chairlift.runner.cuda.runner import CudaRunner

    def make(limits: Limits, kv: KvCache) -> Any:
        model = build_model(config, CudaOps(exact=exact), DummyTensors(config), dtype, device, config.max_model_len)
        runner = CudaRunner(model, kv, device, limits, exact=exact)
        for tables in runner.device._memory.view_tables:  # type: ignore[union-attr]
            tables.fill_(limits.num_blocks)
        return runner

    return BothWays(config, dtype, device, make)
