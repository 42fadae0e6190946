"""What the core needs from outside: a runner that carries plans out, a clock, and perhaps a drafter and an observer."""

from collections.abc import Sequence
from typing import Protocol

from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.request import Request


class RunnerFailed(Exception):
    """The runner could not carry out a step; its requests are failed and the engine goes on."""


class RunnerFull(RunnerFailed):
    """A step did not fit the runner's memory; its requests go on in smaller steps.

    Raised by `submit` alone. Nothing of the plan counts, but every place it was to write to may have changed, and so
    may what the runner sampled last for its requests.
    """


class DeviceLost(Exception):
    """Nothing can be computed any more, nor can what the runner holds be trusted. The engine ends with it; its requests
    go on in another."""


class Runner(Protocol):
    """Carries out plans in the order they were submitted.

    `submit` may return before the work is done; `collect` waits for the oldest plan that has not been collected. Up
    to `depth` plans are submitted before the first is collected: 1 for a runner that works inside `submit`.
    """

    @property
    def depth(self) -> int: ...

    def submit(self, plan: StepPlan) -> None: ...

    def collect(self) -> StepResult: ...


class Drafter(Protocol):
    """Guesses how texts go on. What it guesses changes no token, only how many a step brings."""

    def draft(self, request: Request, tokens: Sequence[int], count: int) -> Sequence[int]:
        """Up to `count` tokens that may follow `tokens`, which are all that is known of the request, prompt included;
        they must not be changed. Depends on its arguments alone."""
        ...


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class Observer(Protocol):
    """Is told everything that goes into a scheduler and comes out of it, in order, and changes nothing of it."""

    def added(self, samples: tuple[Request, ...], now: float) -> None: ...

    def aborted(self, request: RequestId, now: float) -> None: ...

    def planned(self, plan: StepPlan | None, now: float) -> None:
        """None: there was nothing to compute."""
        ...

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None: ...

    def failed(self, plan: StepPlan, message: str, now: float) -> None:
        """The runner could not carry the plan out."""
        ...

    def rolled_back(self, plan: StepPlan, message: str, now: float) -> None:
        """The plan did not fit the runner's memory."""
        ...

    def happened(self, events: Sequence[Event]) -> None: ...
