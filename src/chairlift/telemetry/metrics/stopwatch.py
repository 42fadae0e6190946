"""A runner whose work is timed: how long a step is prepared, and how long the engine waits for it."""

from collections import deque
from time import monotonic

from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Runner


class Stopwatch:
    """Stands in for the runner it is given. A runner that computes inside `submit` says how much of it was preparing;
    of any other, `submit` is the preparing and `collect` the waiting."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._submits: deque[float] = deque()  # of plans that are under way
        self.prepare_s = self.run_s = 0.0  # of the plan collected last

    @property
    def depth(self) -> int:
        return self._runner.depth

    def submit(self, plan: StepPlan) -> None:
        began = monotonic()
        self._runner.submit(plan)
        self._submits.append(monotonic() - began)

    def collect(self) -> StepResult:
        began = monotonic()
        submit_s = self._submits.popleft()
        result = self._runner.collect()
        self.prepare_s = submit_s if result.prepare_s is None else result.prepare_s
        self.run_s = submit_s - self.prepare_s + monotonic() - began
        return result
