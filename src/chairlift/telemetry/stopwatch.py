"""A runner that times its steps: how long they are prepared, how long the engine waits for them, how long any is in
flight, and how many were late."""

from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Clock, Runner


class Stopwatch:
    """Wraps a runner. With steps in flight, `submit` is the preparing and `collect` the waiting. A runner that computes
    inside `submit` reports how much of it was preparing; otherwise none was."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self.prepare_s = 0.0  # so far
        self.run_s = 0.0
        self.num_late = 0  # steps that ended before the next was submitted
        self._runner = runner
        self._now = clock.now
        self._num_in_flight = 0
        self._busy_since = 0.0  # if a step is in flight
        self._busy_s = 0.0  # before that

    @property
    def depth(self) -> int:
        return self._runner.depth

    @property
    def busy_s(self) -> float:
        """Time so far with a step in flight, from `submit` to `collect`; where steps overlap, counted once."""
        return self._busy_s + (self._now() - self._busy_since if self._num_in_flight else 0.0)

    def submit(self, plan: StepPlan) -> None:
        began = self._now()
        if not self._num_in_flight:
            self._busy_since = began
        self._num_in_flight += 1
        try:
            self._runner.submit(plan)
        except BaseException:
            self._end()
            raise
        if self._runner.depth > 1:
            self.prepare_s += self._now() - began
        else:
            self.run_s += self._now() - began

    def collect(self) -> StepResult:
        began = self._now()
        try:
            result = self._runner.collect()
        finally:
            now = self._end()
        self.run_s += now - began
        self.num_late += result.was_ready and self._num_in_flight > 0
        if result.prepare_s is not None:
            self.prepare_s += result.prepare_s
            self.run_s -= result.prepare_s
        return result

    def _end(self) -> float:
        """A step is no longer in flight; returns the time."""
        now = self._now()
        self._num_in_flight -= 1
        if not self._num_in_flight:
            self._busy_s += now - self._busy_since
        return now
