"""Times a runner over a grid of steps and fits the cost model that predicts them.

Every shape is run to warm up, as often as a runner needs to capture it, and then timed several times, all shapes in
turn, so that drifting speed affects all alike; the median counts. Up and down by size: a device that throttles under
heavy steps meets them after their like, as in a run. A separate device is kept busy between shapes, since its clock
falls under a lasting load. The engine's own time per scheduled request is measured on a simulated run and added, unless
the runner takes the next plan while a step is in flight; there only a step that finds the device idle takes longer, and
by how much is measured.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol, runtime_checkable

import torch

from chairlift.core.ids import BlockId
from chairlift.core.limits import Limits
from chairlift.core.plan import BlockCopy, StepPlan
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.calibration.fit import Fit, fit
from chairlift.lab.sim.calibration.grid import Span, grid, plan_of
from chairlift.lab.sim.cost import CostModel, shape_of
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import simulate
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.requests import requests_of
from chairlift.models.kv_groups import kv_groups
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import kv_bytes_per_block
from chairlift.runner.machine import hardware
from chairlift.runner.start.load import Loaded
from chairlift.telemetry.timeline import Timeline

_MAX_MOVED = 64  # blocks that a step copies when copying is timed
_ROUNDS, _QUICK_ROUNDS = 9, 3
_DEVICE_ROUNDS = 5  # of a separate device: its speed drifts less
_NUM_TIMED = 3  # steps in a row, of a runner that takes several at once,
_ENOUGH_S = 0.025  # unless they take long
_BUSY_S = 0.05  # for which a separate device computes before each shape,
_BUSY_ROWS = 1024  # steps of about so many rows
_NUM_STARTS = 8  # shapes of a round that are also timed on an idle device

Watch = Callable[[int, int], None]  # steps done, of how many


@runtime_checkable
class RowByRow(Protocol):
    """A runner that computes short prompt chunks row by row, in steps that are captured once and launched in one go."""

    max_row_pairs: int  # tokens times context of the longest of them


@runtime_checkable
class Padding(Protocol):
    """A runner that pads the rows of a step."""

    rungs: Sequence[int]  # to the next of these, rising


@dataclass(frozen=True, slots=True)
class Calibration:
    fit: Fit
    measured: tuple[dict[str, float], ...]  # each shape with its seconds


class Calibrator:
    """Times its shapes round after round; the result is of all rounds so far."""

    def __init__(self, runner: Runner, limits: Limits, num_host_blocks: int, is_quick: bool = False) -> None:
        self._runner = runner
        self._limits = limits
        self._max_row_pairs = runner.max_row_pairs if isinstance(runner, RowByRow) else 0
        self._rungs = tuple(runner.rungs) if isinstance(runner, Padding) else ()
        self._is_warm = False
        self._num_moved = max(0, min(_MAX_MOVED, limits.num_blocks // 2 - 1, num_host_blocks))
        plans = [plan_of(step, limits) for step in grid(limits, is_quick)]
        self._shapes = [shape_of(plan, limits.block_size, self._max_row_pairs) for plan in plans]
        self._plans = plans + (_moving(self._num_moved, limits) if self._num_moved else [])
        self._seconds: list[list[float]] = [[] for _ in self._plans]
        self._starts: list[tuple[int, float]] = []  # rows, seconds
        self._order = sorted(range(len(self._plans)), key=lambda index: self._size(self._plans[index]))
        self._busy = max(plans, key=lambda plan: (plan.num_tokens <= _BUSY_ROWS, plan.num_tokens, plan.num_decodes))

    def time(self, num_rounds: int, watch: Watch | None = None) -> None:
        """The first call adds a round that only warms up."""
        num_rounds += not self._is_warm
        done = 0
        for _ in range(num_rounds):
            self._order.reverse()
            with _without_collector():
                for place, index in enumerate(self._order):
                    if self._is_warm:
                        self._keep_busy()
                    seconds = step_s(self._runner, self._plans[index])
                    if self._is_warm:
                        self._seconds[index].append(seconds)
                        if place % -(-len(self._order) // _NUM_STARTS) == 0:
                            self._time_start(self._plans[index], seconds)
                    done += 1
                    if watch is not None:
                        watch(done, num_rounds * len(self._plans))
            self._is_warm = True

    def _keep_busy(self) -> None:
        """The steps before a shape are back to back, as in a run."""
        started, depth = time.perf_counter(), self._runner.depth
        for _ in range(depth - 1):
            self._runner.submit(self._busy)
        while depth > 1 and time.perf_counter() - started < _BUSY_S:
            self._runner.submit(self._busy)
            self._runner.collect()
        for _ in range(depth - 1):
            self._runner.collect()

    def _time_start(self, plan: StepPlan, seconds: float) -> None:
        """What the step takes longer than among others when it finds the device idle."""
        if self._runner.depth > 1:
            started = time.perf_counter()
            self._runner.submit(plan)
            self._runner.collect()
            self._starts.append((plan.num_tokens, max(0.0, time.perf_counter() - started - seconds)))

    def _size(self, plan: StepPlan) -> tuple[bool, int]:
        """Steps that wait for their launch apart: the device has little to do in them."""
        shape = shape_of(plan, self._limits.block_size, self._max_row_pairs)
        return self._max_row_pairs > 0 and shape.prompt_pairs > 0, shape.num_rows

    def result(self) -> Calibration:
        medians = [statistics.median(each) for each in self._seconds]
        count = len(self._shapes)
        found = fit(self._shapes, medians[:count], self._max_row_pairs, self._rungs)
        start_s, start_row_s = line(self._starts)
        cost = replace(found.cost, start_s=start_s, start_row_s=start_row_s)
        if self._runner.depth == 1:  # else the engine plans while the device runs
            cost = replace(cost, chunk_s=cost.chunk_s + host_s(self._limits))
        if self._num_moved:
            still, copied, swapped = medians[count:]
            slots = self._num_moved * self._limits.block_size
            # A block is moved out and in again.
            cost = replace(
                cost,
                copy_token_s=max(0.0, copied - still) / slots,
                swap_token_s=max(0.0, swapped - still) / (2 * slots),
            )
        measured = tuple(
            {**shape._asdict(), "median_s": median, "min_s": min(each), "max_s": max(each)}
            for shape, median, each in zip(self._shapes, medians, self._seconds, strict=False)
        )
        return Calibration(Fit(cost, found.errors), measured)


def line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """What (rows, seconds) are at no rows and by how much they rise with each, neither below 0: the median slope of all
    pairs, since the seconds of a large step are the difference of two long times."""
    slopes = [(s - first_s) / (r - rows) for (rows, first_s), (r, s) in combinations(points, 2) if r != rows]
    slope = max(0.0, statistics.median(slopes)) if slopes else 0.0
    rest = [seconds - slope * rows for rows, seconds in points]
    return (max(0.0, statistics.median(rest)) if rest else 0.0), slope


@contextmanager
def _without_collector() -> Iterator[None]:
    """As in a server, which collects rarely."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def calibrate(
    runner: Runner, limits: Limits, num_host_blocks: int, is_quick: bool = False, watch: Watch | None = None
) -> Calibration:
    calibrator = Calibrator(runner, limits, num_host_blocks, is_quick)
    num_rounds = _ROUNDS if runner.depth == 1 else _DEVICE_ROUNDS
    calibrator.time(_QUICK_ROUNDS if is_quick else num_rounds, watch)
    return calibrator.result()


def profile_of(name: str, model: str, config: ModelConfig, loaded: Loaded, found: Calibration) -> Profile:
    limits, facts = loaded.limits, hardware.describe()
    names = {"cpu": f"{facts['cpu']}, {loaded.threads} threads", "cuda": facts.get("gpu 0", "").split(",")[0]}
    device = names.get(loaded.device, loaded.device)
    groups = kv_groups(config, bool(limits.groups))
    kv_token_bytes = kv_bytes_per_block(config, 1, getattr(torch, loaded.kv_dtype), groups)
    error = f"{found.fit.mean_error:.1%} on average, {found.fit.max_error:.1%} at most"
    return Profile(
        name=name,
        model=model,
        device=device,
        dtype=loaded.dtype,
        vocab_size=limits.vocab_size,
        max_model_len=limits.max_model_len,
        max_running=limits.max_running,
        max_step_tokens=limits.max_step_tokens,
        kv_token_bytes=kv_token_bytes,
        kv_memory=limits.num_blocks * limits.block_size * kv_token_bytes,
        groups=limits.groups,
        cost=found.fit.cost,
        depth=loaded.runner.depth,
        note=f"fitted to {len(found.measured)} step shapes with {loaded.kernels} kernels; off by {error}",
        measured=found.measured,
    )


def step_s(runner: Runner, plan: StepPlan) -> float:
    """Seconds of a step among others like it: back to back, as in a run, where the runner takes several at once. The
    first of these does not count: it uploads what the device lacks."""
    depth = runner.depth
    for _ in range(depth - 1):
        runner.submit(plan)
    if depth > 1:
        runner.submit(plan)
        runner.collect()
    started = time.perf_counter()
    num_timed, seconds = 0, 0.0
    while num_timed < (1 if depth == 1 else _NUM_TIMED) and seconds < _ENOUGH_S:
        runner.submit(plan)
        runner.collect()
        num_timed, seconds = num_timed + 1, time.perf_counter() - started
    for _ in range(depth - 1):
        runner.collect()
    return seconds / num_timed


def host_s(limits: Limits) -> float:
    """What planning, committing and watching take per scheduled request."""
    num_running, output = min(limits.max_running, 64), 50
    num_running = max(1, min(num_running, limits.max_pool_tokens // (output + limits.block_size)))
    output = min(output, limits.max_model_len - 1)
    items = [Item(prompt_tokens=1, output_tokens=output)] * num_running
    arriving = list(requests_of(items, limits, 0))
    started = time.perf_counter()
    simulate(arriving, Scheduler(limits, Fcfs()), CostModel(linear=((1, 1.0),)), Timeline())
    return (time.perf_counter() - started) / (num_running * output)


def _moving(count: int, limits: Limits) -> list[StepPlan]:
    """The same small step without moving anything, with copies inside the cache, and with blocks out and in again."""
    step = (Span(limits.block_size - 1),)  # its one block is block 0
    copies = tuple(BlockCopy(BlockId(1 + i), BlockId(1 + count + i)) for i in range(count))
    out = tuple(BlockCopy(BlockId(1 + i), BlockId(i)) for i in range(count))
    back = tuple(BlockCopy(target, source) for source, target in out)
    return [plan_of(step, limits), plan_of(step, limits, copies), plan_of(step, limits, (), out, back)]
