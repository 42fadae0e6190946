"""What the core needs from outside: a runner, a clock, and perhaps a drafter and an observer."""

from collections.abc import Callable, Sequence
from typing import Protocol

from chairlift.core.events import Event
from chairlift.core.ids import BlockId, RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policy import Service
from chairlift.core.request import Request


class RunnerFailed(Exception):
    """The runner could not carry out a step; its requests are failed and the engine goes on."""


class RunnerFull(RunnerFailed):
    """A step did not fit the runner's memory; its requests go on in smaller steps.

    Raised by `submit` alone. Nothing of the plan counts, but every slot that it writes and the last tokens sampled for
    its requests may have changed.
    """


class DeviceLost(Exception):
    """The device computes no more and its memory cannot be trusted. The engine ends; its requests go on in another."""


class Runner(Protocol):
    """Carries out plans in the order they were submitted.

    `submit` may return before the work is done; `collect` waits for the oldest uncollected plan. Up to `depth` plans
    are in flight: 1 for a runner that computes inside `submit`.
    """

    @property
    def depth(self) -> int: ...

    def submit(self, plan: StepPlan) -> None: ...

    def collect(self) -> StepResult: ...


class HostMemory(Protocol):
    """The host memory of a runner that blocks are swapped to, for what travels to another engine and comes from one.

    All that a submitted plan moves to or from the host has moved when `submit` returns. Other threads may read and
    write here meanwhile, in blocks that are not moved.
    """

    @property
    def block_bytes(self) -> int: ...

    @property
    def layout(self) -> str:
        """What the bytes of a block mean; equal only where one runner can read what another wrote."""
        ...

    def read(self, blocks: Sequence[BlockId], target: memoryview) -> None:
        """Copies the blocks to a piece of `block_bytes` for each."""
        ...

    def write(self, blocks: Sequence[BlockId], source: memoryview) -> None: ...


class AdapterMemory(Protocol):
    """Adapters in the host's memory, from which plans load them to the device. One that requests use stays."""

    def use(self, adapter: int) -> bool:
        """Whether it is there; it was used last then."""
        ...

    def read(self, adapter: int, path: str) -> None:
        """From its folder, in any thread; raises `InvalidConfig`."""
        ...

    def drop(self, adapter: int) -> None: ...

    def make_room(self, is_used: Callable[[int], bool]) -> bool:
        """Forgets adapters that are not used, the least recently used first; whether there is room for another."""
        ...


class Drafter(Protocol):
    """Guesses the next tokens. Guesses change no token, only how many a step brings."""

    def draft(self, request: Request, tokens: Sequence[int], count: int) -> Sequence[int]:
        """Up to `count` tokens that may follow `tokens`: all known tokens of the request, prompt included, not to be
        changed. Depends on its arguments alone."""
        ...


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class Observer(Protocol):
    """Sees all input and output of a scheduler, in order, and changes none of it."""

    def added(self, samples: tuple[Request, ...], now: float) -> None: ...

    def aborted(self, request: RequestId, now: float, has_moved: bool) -> None: ...

    def leaving(self, request: RequestId, now: float) -> None:
        """It was asked to leave with its keys and values."""
        ...

    def arrived(self, request: RequestId, is_whole: bool, now: float) -> None:
        """The keys and values of a request came from another engine, or did not."""
        ...

    def served_elsewhere(self, services: Sequence[Service], now: float) -> None:
        """It was told what users were served in other replicas."""
        ...

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


class Unobserved(Observer):
    """Sees and does nothing."""
