"""The way of a request to the engine: HTTP processes, each of which reads one request after the other.

Which of them a connection meets is chance. Of requests that are sent at once, a short one is therefore often seen
before a long one, but not always.
"""

import heapq
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from chairlift.core.ids import RequestId
from chairlift.core.request import Request

Arriving = Iterable[tuple[float, Request]]  # in order of arrival


class Seen(NamedTuple):
    """A request that the engine sees, some time after it arrived."""

    at: float
    number: int  # of arrivals
    arrival: float
    request: Request


class Frontends:
    def __init__(self, count: int = 1, request_s: float = 0.0, token_s: float = 0.0, seed: int = 0) -> None:
        """`request_s` passes beside others, `token_s` for each prompt token in turn."""
        self._request_s = request_s
        self._token_s = token_s
        self._free_at = [0.0] * count
        self._rng = random.Random(f"frontends {seed}")
        self._delay_s: dict[RequestId, float] = {}  # of requests on their way

    def delay_s(self, request: Request) -> float:
        """Of the one that was seen last."""
        return self._delay_s[request.id]

    def seen(self, arriving: Arriving) -> Iterator[Seen]:
        """In the order in which they are seen."""
        on_the_way: list[Seen] = []
        for number, (arrival, request) in enumerate(arriving):
            while on_the_way and on_the_way[0].at <= arrival:
                yield from self._next(on_the_way)
            at = self._read(arrival, len(request.prompt)) + self._request_s
            self._delay_s[request.id] = at - arrival
            heapq.heappush(on_the_way, Seen(at, number, arrival, request))
        while on_the_way:
            yield from self._next(on_the_way)

    def _read(self, arrival: float, num_tokens: int) -> float:
        """When a front end has read a request."""
        which = self._rng.randrange(len(self._free_at))
        read = max(arrival, self._free_at[which]) + self._token_s * num_tokens
        self._free_at[which] = read
        return read

    def _next(self, on_the_way: list[Seen]) -> Iterator[Seen]:
        seen = heapq.heappop(on_the_way)
        yield seen
        del self._delay_s[seen.request.id]
