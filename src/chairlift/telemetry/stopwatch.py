"""A runner that times its steps: how long they are prepared, and how long the engine waits for them."""

from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Clock, Runner


class Stopwatch:
    """Wraps a runner. With steps in flight, `submit` is the preparing and `collect` the waiting. A runner that computes
    inside `submit` reports how much of it was preparing; otherwise none was."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self.prepare_s = 0.0  # so far
        self.run_s = 0.0
        self._runner = runner
        self._now = clock.now

    @property
    def depth(self) -> int:
        return self._runner.depth

    def submit(self, plan: StepPlan) -> None:
        began = self._now()
        self._runner.submit(plan)
        if self._runner.depth > 1:
            self.prepare_s += self._now() - began
        else:
            self.run_s += self._now() - began

    def collect(self) -> StepResult:
        began = self._now()
        result = self._runner.collect()
        self.run_s += self._now() - began
        if result.prepare_s is not None:
            self.prepare_s += result.prepare_s
            self.run_s -= result.prepare_s
        return result
