"""Policies whose order is a number that is known when a request begins to wait."""

from abc import abstractmethod
from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.memory.preemption import Rank
from chairlift.core.policy import Policy, RequestView
from chairlift.core.scheduling.queue import RankedQueue

MEASURES = ("output", "prompt", "total")


def length_of(view: RequestView, by: str) -> int:
    """Expected output, prompt or both; output so far does not shorten it."""
    prompt = len(view.request.prompt)
    return {"output": view.expected_output, "prompt": prompt, "total": prompt + view.expected_output}[by]


def check_measure(by: str) -> None:
    """The length of a request, for policies that order by it."""
    if by not in MEASURES:
        raise ValueError(f"by must be one of {', '.join(MEASURES)}")


class Ranked(Policy):
    """Smaller ranks first, ties by id. The newest request is the victim, so that the oldest always makes progress;
    `victim_rank` names another, larger ranks first."""

    def __init__(self) -> None:
        self._queue = RankedQueue()

    @abstractmethod
    def rank(self, view: RequestView) -> Rank: ...

    def push(self, view: RequestView, now: float) -> None:
        self._queue.push(view.id, self.rank(view))

    def first(self, now: float) -> RequestId | None:
        return self._queue.first()

    def remove(self, view: RequestView) -> None:
        self._queue.remove(view.id)

    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        return max(running, key=lambda view: (*self.victim_rank(view), view.id)).id

    def victim_rank(self, view: RequestView) -> Rank:
        return (view.arrival,)


_VICTIMS = ("newest", "shortest")


class Fcfs(Ranked):
    """First come, first served.

    Bound: no request is overtaken by one that arrives later. The victim is the newest request, or the shortest: the
    one with the fewest tokens so far.
    """

    def __init__(self, victim: str = "newest") -> None:
        super().__init__()
        if victim not in _VICTIMS:
            raise ValueError(f"victim must be one of {', '.join(_VICTIMS)}")
        self._victim = victim

    def rank(self, view: RequestView) -> Rank:
        return (view.arrival,)

    def victim_rank(self, view: RequestView) -> Rank:
        return (view.arrival,) if self._victim == "newest" else (-view.num_known, view.arrival)


class Priority(Ranked):
    """Smaller priority numbers first; a second of waiting is worth `aging` levels.

    Bound: a request p levels worse than the best is overtaken only by requests that arrive within p / aging seconds
    of it. No bound with aging=0.
    """

    def __init__(self, aging: float = 0.1) -> None:
        super().__init__()
        if aging < 0:
            raise ValueError("aging must not be negative")
        self._aging = aging

    def rank(self, view: RequestView) -> Rank:
        # All age at the same rate, so the order of two requests never changes: it can be a number.
        return (view.request.attributes.priority + self._aging * view.arrival, view.arrival)

    def victim_rank(self, view: RequestView) -> Rank:
        return self.rank(view)


class Deadline(Ranked):
    """The earliest deadline first; a request without one is due `default` seconds after its arrival.

    Bound: no request is overtaken by one that arrives after its deadline, met or not.
    """

    def __init__(self, default: float = 60.0) -> None:
        super().__init__()
        if default < 0:
            raise ValueError("default must not be negative")
        self._default = default

    def rank(self, view: RequestView) -> Rank:
        given = view.request.attributes.deadline_s
        return (view.arrival + (self._default if given is None else given), view.arrival)

    def victim_rank(self, view: RequestView) -> Rank:
        return self.rank(view)


class ShortestFirst(Ranked):
    """The shortest request first: the best mean latency, while long ones wait.

    Length is expected output, prompt or both (`by`); expected output is max_tokens, or what the user's requests
    needed. No bound: a long request waits while shorter ones keep arriving. `mlfq` has a bound.
    """

    def __init__(self, by: str = "output") -> None:
        super().__init__()
        check_measure(by)
        self._by = by

    def rank(self, view: RequestView) -> Rank:
        return (length_of(view, self._by), view.arrival)

    def victim_rank(self, view: RequestView) -> Rank:
        """The request with the most tokens left."""
        return (view.expected_output - view.num_output, view.arrival)


class LongestFirst(Ranked):
    """The longest request first, so that no long one runs alone at the end.

    Length is expected output, prompt or both (`by`); expected output is max_tokens, or what the user's requests
    needed. No bound: a short request waits while longer ones keep arriving. For a batch of work, not for a steady
    stream.
    """

    def __init__(self, by: str = "output") -> None:
        super().__init__()
        check_measure(by)
        self._by = by

    def rank(self, view: RequestView) -> Rank:
        return (-length_of(view, self._by), view.arrival)

    def victim_rank(self, view: RequestView) -> Rank:
        """The request with the fewest computed tokens: it loses the least."""
        return (-view.num_computed, view.arrival)
