"""What can be chosen about scheduling: three small protocols, each seeing requests through a read-only view.

- A `Policy` keeps the waiting requests in its order and picks victims when blocks run out.
- A `Prefill` says which prompts may enter a step.
- An `Admission` says whether memory allows the next one.

None of them touches blocks. A policy may also be `Served` (told which tokens each step computes), `Leaving` (told who
is gone), `Yielding` (it names running requests that step off for waiting ones) or `CacheAware` (it may ask what is
cached); an admission rule may be `Looking` (it sees who runs once a step).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from chairlift.core.ids import RequestId
from chairlift.core.request import Request


class Standing(Protocol):
    """How far a request has come, for reading."""

    @property
    def id(self) -> RequestId: ...
    @property
    def request(self) -> Request: ...
    @property
    def arrival(self) -> float: ...
    @property
    def expected_output(self) -> int: ...  # max_tokens, or what requests like it have needed
    @property
    def num_computed(self) -> int: ...
    @property
    def num_known(self) -> int: ...
    @property
    def num_output(self) -> int: ...
    @property
    def num_preempted(self) -> int: ...
    @property
    def num_unborn(self) -> int: ...  # further samples that start from its prompt once that is computed


class Policy(Protocol):
    def push(self, standing: Standing, now: float) -> None:
        """A request begins to wait."""
        ...

    def first(self, now: float) -> RequestId | None:
        """Who steps on next; None when nobody waits. Asked again until that one is removed."""
        ...

    def remove(self, standing: Standing) -> None:
        """A request no longer waits: it was admitted, or it is gone."""
        ...

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """Which running request gives its blocks back; `running` is never empty, in order of admission."""
        ...


@runtime_checkable
class Served(Protocol):
    def served(self, standing: Standing, num_prompt: int, num_output: int) -> None:
        """A plan computes so many prompt tokens and samples so many output tokens for this request."""
        ...

    def decoded(self, standings: Sequence[Standing]) -> None:
        """A plan samples one output token for each of these: told once for all who only decode, for they are many."""
        ...


@runtime_checkable
class Leaving(Protocol):
    def left(self, standing: Standing) -> None:
        """A request has ended, however it ended; nothing more will be heard of it."""
        ...


@runtime_checkable
class Yielding(Protocol):
    def yielding(self, running: Sequence[Standing], now: float) -> Sequence[RequestId]:
        """Running requests that step off although blocks suffice, to wait again in the policy's order; asked while all
        seats are taken and others wait."""
        ...


class CacheView(Protocol):
    def num_cached(self, standing: Standing) -> int:
        """Tokens of a waiting request that the prefix index holds now."""
        ...


@runtime_checkable
class CacheAware(Protocol):
    def watch(self, cache: CacheView) -> None:
        """Called once, before any request."""
        ...


class StepView(NamedTuple):
    """What a prefill rule sees of the step that is being planned."""

    now: float
    num_waiting: int
    oldest_arrival: float  # of who has waited longest; `now` when nobody waits
    num_preempted: int  # requests that stepped off and wait to come back; they go before those that wait
    num_admitted: int  # of those that waited, since the beginning
    num_decodes: int
    num_prompts: int  # running requests that are still in their prompt
    num_seats: int  # requests that may still be admitted
    last_prompt_s: float  # how long the last step took that computed prompts; 0 before the first
    has_preempted: bool  # in this very step


class Allowance(NamedTuple):
    decodes: bool = True  # running requests may decode
    prompts: bool = True  # prompts in progress may go on
    num_new: int = 1 << 30  # how many requests may be admitted


class Prefill(Protocol):
    def allow(self, view: StepView) -> Allowance:
        """May be asked again within a step that preempts. Not listened to when it allows nothing of what could be done
        and no step is under way."""
        ...


class MemoryView(NamedTuple):
    num_free: int  # blocks
    block_size: int
    running: Collection[Standing]


class Admission(Protocol):
    def fits(self, candidate: Standing, num_new: int, memory: MemoryView) -> bool:
        """Whether a request that takes `num_new` of the free blocks now may step on, which it then does; not asked when
        nobody runs."""
        ...


@runtime_checkable
class Looking(Protocol):
    def look(self, memory: MemoryView) -> None:
        """Called before the first `fits` of a step. Until the next call nothing changes but that who fits steps on, so
        what depends on all that run need be worked out only here."""
        ...
