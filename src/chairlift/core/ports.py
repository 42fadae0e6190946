"""What the core needs from outside: a runner that carries plans out, and a clock."""

from typing import Protocol

from chairlift.core.plan import StepPlan, StepResult


class RunnerFailed(Exception):
    """The runner could not carry out a step; its requests are failed and the engine goes on."""


class Runner(Protocol):
    """Carries out plans in the order they were submitted.

    `submit` may return before the work is done; `collect` waits for the oldest plan that has not been collected. Up
    to `depth` plans are submitted before the first is collected: 1 for a runner that works inside `submit`.
    """

    @property
    def depth(self) -> int: ...

    def submit(self, plan: StepPlan) -> None: ...

    def collect(self) -> StepResult: ...


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...
