"""A line of throughput for every ten seconds that an engine has worked.

Always: an idle engine writes nothing, and its idle time counts for nothing.
"""

import logging
from collections.abc import Sequence

from chairlift.core.events import Event, Token
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Unobserved
from chairlift.core.scheduling.scheduler import Scheduler

PERIOD_S = 10.0
_log = logging.getLogger("chairlift.throughput")


class ThroughputLog(Unobserved):
    """An engine's observer."""

    def __init__(self, scheduler: Scheduler, label: str = "") -> None:
        """`label`: begins each line, where there are several engines."""
        self._scheduler = scheduler
        self._label = label
        self._planned: dict[int, float] = {}  # when each step in flight was planned
        self._ended = 0.0  # the last step
        self._work_s = 0.0
        self._num_prompt = self._num_output = 0

    def planned(self, plan: StepPlan | None, now: float) -> None:
        if plan is not None:
            self._planned[plan.step] = now

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None:
        self._num_prompt += sum(chunk.count for chunk in plan.chunks[plan.num_decoding :])
        self._end(plan, now)

    def failed(self, plan: StepPlan, message: str, now: float) -> None:
        self._end(plan, now)

    def rolled_back(self, plan: StepPlan, message: str, now: float) -> None:
        self._end(plan, now)

    def happened(self, events: Sequence[Event]) -> None:
        self._num_output += sum(isinstance(event, Token) for event in events)
        if self._work_s >= PERIOD_S:
            self._write()

    def _end(self, plan: StepPlan, now: float) -> None:
        # Steps in flight overlap: each adds the time since the one before it.
        self._work_s += now - max(self._planned.pop(plan.step), self._ended)
        self._ended = now

    def _write(self) -> None:
        scheduler = self._scheduler
        used = 1.0 - scheduler.pool.num_free / scheduler.limits.num_blocks
        _log.info(
            "%sprefill %.0f tokens/s, decode %.0f tokens/s; %d requests running, %d waiting; KV cache %.0f %% full",
            self._label,
            self._num_prompt / self._work_s,
            self._num_output / self._work_s,
            len(scheduler.running),
            len(scheduler.waiting),
            100.0 * used,
        )
        self._work_s = 0.0
        self._num_prompt = self._num_output = 0
