"""The base classes of scheduling rules, and the read-only views that rules decide by.

- A `Policy` orders the waiting requests and picks victims when blocks run out.
- A `Prefill` rule says which prompts may enter a step.
- An `Admission` rule says whether memory allows the next request.

Each is named like its option. Abstract methods are required; the others are hooks that do nothing unless overridden.
Rules never touch blocks, and know no clock: time comes in as `now`.
"""

# ruff: noqa: B027  hooks do nothing on purpose

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar, NamedTuple, Protocol

from chairlift.core.ids import RequestId
from chairlift.core.memory.pages import Pages
from chairlift.core.request import Request


class RequestView(Protocol):
    """A request and how far it has come, for reading. A view may be kept: its fields always show the present."""

    @property
    def id(self) -> RequestId: ...
    @property
    def request(self) -> Request: ...
    @property
    def arrival(self) -> float:
        """When it was added to this engine. Never changes, so a later `push` has a later `now`."""
        ...

    @property
    def expected_output(self) -> int:
        """Output tokens in all, not those left: max_tokens, or what requests like it have needed. Fixed on arrival; the
        output may exceed it."""
        ...

    @property
    def num_computed(self) -> int:
        """While waiting 0, whatever the prefix index or the host holds of it. While running, the tokens whose keys and
        values are there once every issued plan is carried out, those found in the cache included."""
        ...

    @property
    def num_known(self) -> int:
        """Prompt, output, and tokens that issued plans sample: some may still be on their way just after it yielded. A
        running request decodes when all but one are computed."""
        ...

    @property
    def num_output(self) -> int:
        """Output tokens that have come. A preemption keeps them, so a waiting request may have some."""
        ...

    @property
    def num_preempted(self) -> int:
        """How often it has been preempted, by yielding too."""
        ...

    @property
    def num_pending_forks(self) -> int:
        """Further samples that start from its prompt: while waiting and in its prompt. 0 once that is computed."""
        ...


class CacheView(Protocol):
    def num_cached(self, view: RequestView) -> int:
        """Tokens of a waiting request that the prefix index holds now, in whole blocks. Costs a look-up for each block
        found."""
        ...


class Service(NamedTuple):
    """What a user was served."""

    user: str
    share: float  # its weight beside others
    num_prompt: int  # tokens computed
    num_output: int


class Policy(ABC):
    # Whether `decoded`, where it is overridden, counts calls and looks at `request` alone: then the simulator may tell
    # of several steps when the last is done.
    skips_steady: ClassVar[bool] = False

    @abstractmethod
    def push(self, view: RequestView, now: float) -> None:
        """A request begins to wait, at `now`: on arrival; again after `yielding` named it, or once its adapter has a
        slot; or as the next sample of a prompt whose first one ended before the prompt was computed. Of several samples
        only the first waits. A victim does not: preempted for memory, it is admitted before all waiting requests."""

    @abstractmethod
    def first(self, now: float) -> RequestId | None:
        """The waiting request to admit next, None if none waits. Asked again until that request is removed."""

    @abstractmethod
    def remove(self, view: RequestView) -> None:
        """A request no longer waits in this order: it was admitted, has ended, or its adapter waits for a slot."""

    @abstractmethod
    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        """The running request to preempt; `running` is never empty, in order of admission."""

    def watch(self, cache: CacheView) -> None:
        """Called once, before any request; the view stays valid."""

    def served(self, view: RequestView, num_prompt: int, num_output: int) -> None:
        """A plan computes so many prompt tokens and samples so many output tokens of this request; or a result brings
        so many more of these, as drafts were right."""

    def decoded(self, views: Sequence[RequestView]) -> None:
        """A plan samples one output token of each. One call for all decodes of a step: override it where they are many
        and `served` is slow."""
        for view in views:
            self.served(view, 0, 1)

    def served_elsewhere(self, services: Sequence[Service]) -> None:
        """What users were served in other replicas since the last call, each user once. Called several times a second
        where there are some: the least delay is a step."""

    def left(self, view: RequestView) -> None:
        """A request has ended, for whatever reason; it does not come back."""

    def yielding(self, running: Sequence[RequestView], now: float) -> Sequence[RequestId]:
        """Running requests to preempt although blocks suffice; they wait again in the policy's order. Asked while the
        running set is full and requests wait."""
        return ()


class StepView(NamedTuple):
    """The step that is being planned."""

    now: float
    num_waiting: int
    oldest_arrival: float  # of the waiting requests; `now` if none waits
    num_preempted: int  # preempted requests, which are admitted before waiting ones
    num_admitted: int  # waiting requests admitted since the beginning
    num_decodes: int
    num_prompts: int  # running requests that are still in their prompt
    num_admissible: int  # requests that the running set has room for
    last_prompt_s: float  # how long the last step took that computed prompts; 0 before the first
    has_preempted: bool  # in this very step
    fixed_s: float = 0.0  # how long a step takes lately without prompts
    token_s: float = 0.0  # and for each prompt token; 0 while not known


class Allowance(NamedTuple):
    decodes: bool = True  # running requests may decode
    prompts: bool = True  # prompts in progress may go on
    num_new: int = 1 << 30  # how many requests may be admitted
    num_tokens: int = 1 << 30  # prompt tokens that may be computed
    num_more: int = 1 << 30  # of these: tokens of prompts after the first, which then have to be completed


class Prefill(ABC):
    # Whether, while all requests decode and none waits, it lets them and remembers nothing: then the simulator need not
    # ask it in each step.
    skips_steady: ClassVar[bool] = False

    @abstractmethod
    def allow(self, step: StepView) -> Allowance:
        """Asked again within a step that preempts. Ignored if it would leave the engine with nothing in flight."""


class MemoryView(NamedTuple):
    num_free: int  # blocks; pages, where a block of tokens takes several
    block_size: int
    running: Collection[RequestView]
    pages: Pages  # how many tokens take


class Admission(ABC):
    @abstractmethod
    def fits(self, candidate: RequestView, num_new: int, memory: MemoryView) -> bool:
        """Whether to admit a request that takes `num_new` of the free pages now. Not asked while none runs. A request
        that fits is admitted at once."""

    def look(self, memory: MemoryView) -> None:
        """Called before the first `fits` of a step. Until the next call the running set changes only by requests that
        fit, so sums over all of it belong here."""
