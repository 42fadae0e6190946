"""Whole steps on a GPU: which kernels they are made of, how much of a run the GPU is busy, what the host does for one.

Kernel times are those of torch's profiler. The parts of `by_kernel.py` that need a model.
"""

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from engine import GpuEngine, Lengths, drain, lengths_of
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from chairlift.core.events import Token
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policies.rankings import Fcfs, LongestFirst
from chairlift.core.policy import Policy
from chairlift.core.ports import Runner
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.spec import ModelConfig
from chairlift.runner.cuda.step.host import HostPart
from chairlift.runner.cuda.step.input import StepInput

Row = dict[str, Any]
Kernel = tuple[int, int, str]  # start and end in ns, name

NUM_PROFILED = 16  # steps
SHOWN = 14  # kernels of a step
WAIT_NS = 10_000  # a gap between kernels that is longer than this is the host's
MANY = 1024  # requests running when the host is timed


def steps(config: ModelConfig) -> list[Row]:
    """The kernels of a step of decodes, for one request and for 256."""
    gpu = GpuEngine(config, max_running=256, max_step_tokens=4096)
    rows = _kernels_of_step(gpu, "1 row", [(128, 64)])
    return rows + _kernels_of_step(gpu, "256 rows", [(20 + i, 64) for i in range(256)])


def _kernels_of_step(gpu: GpuEngine, name: str, lengths: Lengths) -> list[Row]:
    drain(gpu.engine(Fcfs(), lengths))  # captures
    engine = gpu.engine(Fcfs(), lengths)
    num_tokens = 0
    while num_tokens < 4 * len(lengths):  # all are decoding
        num_tokens += sum(type(event) is Token for event in engine.step())
    wall_s, kernels = _profiled(lambda: [engine.step() for _ in range(NUM_PROFILED)])
    drain(engine)
    times: dict[str, list[int]] = defaultdict(list)
    for start, end, kernel in kernels:
        times[kernel].append(end - start)
    ranked = sorted(times.items(), key=lambda item: -sum(item[1]))
    rows = [
        {
            "step": name,
            "kernel": kernel,
            "a step": round(len(each) / NUM_PROFILED, 1),
            "us each": round(statistics.mean(each) / 1e3, 2),
            "ms a step": round(sum(each) / NUM_PROFILED / 1e6, 3),
        }
        for kernel, each in ranked
    ]
    rest = sum(row["ms a step"] for row in rows[SHOWN:])
    rows = [*rows[:SHOWN], {"step": name, "kernel": "others", "ms a step": round(rest, 3)}]
    busy, within = _busy_ns(kernels, 0), _busy_ns(kernels, WAIT_NS)
    rows.append(
        {"step": name, "kernel": "between kernels", "ms a step": round((within - busy) / NUM_PROFILED / 1e6, 3)}
    )
    idle = wall_s * 1e3 - within / 1e6
    rows.append({"step": name, "kernel": "waiting for the host", "ms a step": round(idle / NUM_PROFILED, 3)})
    return rows


def busy(config: ModelConfig, workload: Path) -> list[Row]:
    """The share of a run in which some kernel or copy was in flight; the first run of three captures graphs."""
    gpu = GpuEngine(config, max_running=256, max_step_tokens=256)
    lengths = lengths_of(workload)
    drain(gpu.engine(LongestFirst(), lengths))
    plain_s, num_steps, num_tokens = drain(gpu.engine(LongestFirst(), lengths))
    assert num_tokens == sum(n for _, n in lengths), "an answer has not its full length"
    engine = gpu.engine(LongestFirst(), lengths)
    wall_s, kernels = _profiled(lambda: drain(engine))
    strict, joined = _busy_ns(kernels, 0) / 1e9, _busy_ns(kernels, WAIT_NS) / 1e9
    return [
        {
            "steps": num_steps,
            "kernels": len(kernels),
            "wall s": round(wall_s, 3),
            "wall s without profiler": round(plain_s, 3),
            "busy s": round(strict, 3),
            "busy %": round(100 * strict / wall_s, 2),
            f"% with gaps up to {WAIT_NS // 1000} us": round(100 * joined / wall_s, 2),
        }
    ]


def _profiled(work: Callable[[], object]) -> tuple[float, list[Kernel]]:
    """(seconds until the GPU has done it, its kernels and copies in order)."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        wall_s = time.perf_counter() - began
    # Its raw events: making torch's own lists of 150,000 kernels takes minutes.
    events = [e for e in profiler.profiler.kineto_results.events() if e.device_type() == DeviceType.CUDA]
    return wall_s, sorted((e.start_ns(), e.start_ns() + e.duration_ns(), _short(e.name())) for e in events)


def _busy_ns(kernels: list[Kernel], gap_ns: int) -> int:
    """The length of the union of all intervals, with gaps up to this one filled."""
    total, reached = 0, kernels[0][0]
    for start, end, _ in kernels:
        if end > reached:
            total += end - (reached if start - reached <= gap_ns else start)
            reached = end
    return total


def _short(name: str) -> str:
    return name.removeprefix("void ").replace("at::native::", "")[:56]


class Stopwatch:
    """Milliseconds that each kind of work took, with the number of the step it was for."""

    def __init__(self) -> None:
        self.times: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.many: set[int] = set()  # steps of as many decodes as may run, and nothing else
        self.began: list[tuple[int, float]] = []

    def add(self, kind: str, step: int, began: float) -> None:
        self.times[kind].append((step, (time.perf_counter() - began) * 1e3))


class TimedScheduler(Scheduler):
    watch: Stopwatch

    def schedule(self, now: float) -> StepPlan | None:
        began = time.perf_counter()
        plan = super().schedule(now)
        if plan is not None:
            self.watch.add("schedule", plan.step, began)
            self.watch.began.append((plan.step, began))
            if plan.num_decodes == len(plan.chunks) == MANY:
                self.watch.many.add(plan.step)
        return plan

    def commit(self, plan: StepPlan, result: StepResult, now: float) -> None:
        began = time.perf_counter()
        super().commit(plan, result, now)
        self.watch.add("commit", plan.step, began)


class TimedRunner:
    """Waits for the GPU by itself before it collects, so that the runner's own part is seen."""

    def __init__(self, runner: Runner, watch: Stopwatch) -> None:
        self._runner, self._watch = runner, watch
        self._events: list[tuple[int, torch.cuda.Event]] = []

    @property
    def depth(self) -> int:
        return self._runner.depth

    def submit(self, plan: StepPlan) -> None:
        began = time.perf_counter()
        self._runner.submit(plan)
        self._watch.add("prepare and launch", plan.step, began)
        event = torch.cuda.Event()
        event.record()
        self._events.append((plan.step, event))

    def collect(self) -> StepResult:
        step, event = self._events.pop(0)
        began = time.perf_counter()
        event.synchronize()
        self._watch.add("waiting for the GPU", step, began)
        began = time.perf_counter()
        result = self._runner.collect()
        self._watch.add("collect", step, began)
        return result


def host(config: ModelConfig) -> list[Row]:
    """What the host does for a step of 1,024 decodes, in milliseconds, and how long it then waits for the GPU."""
    gpu = GpuEngine(config, max_running=MANY, max_step_tokens=4096)
    lengths = [(32, 56)] * MANY
    drain(gpu.engine(Fcfs(), lengths))
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as the server's engine has it
    watch = Stopwatch()

    def timed(limits: Limits, policy: Policy) -> Scheduler:
        scheduler = TimedScheduler(limits, policy, has_prefix_index=False)
        scheduler.watch = watch
        return scheduler

    input_of = HostPart.input_of

    def timed_input_of(host: HostPart, plan: StepPlan) -> StepInput:
        began = time.perf_counter()
        step = input_of(host, plan)
        watch.add("of which the step input", plan.step, began)
        return step

    with patch.object(HostPart, "input_of", timed_input_of):
        drain(gpu.engine(Fcfs(), lengths, TimedRunner(gpu.runner, watch), timed))
    times = {kind: [ms for step, ms in each if step in watch.many] for kind, each in watch.times.items()}
    parts = ("schedule", "prepare and launch", "collect", "commit")
    sums = [sum(each) for each in zip(*(times[kind] for kind in parts), strict=True)]
    begins = [began for step, began in watch.began if step in watch.many]
    walls = [(b - a) * 1e3 for a, b in pairwise(begins)]
    named = {**times, "host, sum": sums, "a step, wall": walls}
    order = (*parts[:2], "of which the step input", *parts[2:], "host, sum", "waiting for the GPU", "a step, wall")
    return [{"1,024 running": kind, **_spread(named[kind])} for kind in order]


def _spread(values: list[float]) -> Row:
    ordered = sorted(values)
    high = ordered[int(0.95 * (len(ordered) - 1))]
    return {"median ms": round(statistics.median(ordered), 3), "p95 ms": round(high, 3), "steps": len(ordered)}
