"""Every user gets the same share of the tokens: next is whoever has been served least (a virtual token counter).

A prompt token counts `prompt`, an output token `output`. A user who was away does not save up: on coming back its
counter is raised to the smallest among those who wait. So a user with work waiting falls behind another by no more than
one request's tokens and a step.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable

from chairlift.core.ids import RequestId
from chairlift.core.policy import Standing


class FairShare:
    def __init__(self, prompt: float = 1.0, output: float = 2.0) -> None:
        self._weights = (prompt, output)
        self._served: dict[str, float] = {}
        self._queues: dict[str, OrderedDict[RequestId, None]] = {}  # users with requests that wait
        self._heap: list[tuple[float, str]] = []  # (served when pushed, user); stale entries are pushed again
        self._floor = 0.0  # what the least served waiting user had been served when last looked at

    def push(self, standing: Standing, now: float) -> None:
        user = standing.request.user
        queue = self._queues.setdefault(user, OrderedDict())
        if not queue:
            self._served[user] = max(self._served.get(user, 0.0), self._floor)
            heapq.heappush(self._heap, (self._served[user], user))
        queue[standing.id] = None

    def first(self, now: float) -> RequestId | None:
        while self._heap:
            served, user = self._heap[0]
            if user not in self._queues:
                heapq.heappop(self._heap)
            elif served != self._served[user]:
                heapq.heapreplace(self._heap, (self._served[user], user))
            else:
                self._floor = served
                return next(iter(self._queues[user]))
        return None

    def remove(self, standing: Standing) -> None:
        user = standing.request.user
        del self._queues[user][standing.id]
        if not self._queues[user]:
            del self._queues[user]

    def served(self, standing: Standing, num_prompt: int, num_output: int) -> None:
        user = standing.request.user
        prompt, output = self._weights
        self._served[user] = self._served.get(user, self._floor) + prompt * num_prompt + output * num_output

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The newest request of the user who has been served most."""
        return max(running, key=lambda s: (self._served.get(s.request.user, 0.0), s.arrival, s.id)).id
