"""A runner whose calls are timed: how long the engine spends handing plans over, and waiting for their results."""

from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Clock, Runner


class TimedRunner:
    def __init__(self, runner: Runner, clock: Clock) -> None:
        self.submit_s = 0.0  # so far
        self.collect_s = 0.0
        self._runner = runner
        self._now = clock.now

    @property
    def depth(self) -> int:
        return self._runner.depth

    def submit(self, plan: StepPlan) -> None:
        began = self._now()
        try:
            self._runner.submit(plan)
        finally:
            self.submit_s += self._now() - began

    def collect(self) -> StepResult:
        began = self._now()
        try:
            return self._runner.collect()
        finally:
            self.collect_s += self._now() - began
