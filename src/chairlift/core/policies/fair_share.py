"""Who has been served least goes next: every user gets the same share of the tokens, or as many times it as it has
shares (`Request.share`, the latest counts).

Each has a virtual token counter: a prompt token counts `prompt`, an output token `output`, what is computed again after
stepping off nothing. A user who was away has not saved up: its counter is raised to that of the least served who waited
meanwhile. Within a user, first come first served.

Bound: of two users with requests waiting, one falls behind the other by no more than a prompt and the output of the
requests that the other has running.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from chairlift.core.ids import RequestId
from chairlift.core.policy import Standing

_MAX_USERS = 10_000  # remembered beyond those that wait; who is forgotten starts anew


class FairShare:
    def __init__(self, prompt: float = 1.0, output: float = 2.0) -> None:
        if prompt < 0 or output <= 0:
            raise ValueError("prompt must not be negative, output must be above 0")
        self._weights = (prompt, output)
        self._served: dict[str, float] = {}  # tokens per share
        self._shares: dict[str, float] = {}  # of users that have other than one
        self._queues: dict[str, OrderedDict[RequestId, None]] = {}  # of users with requests that wait
        # (served, user), once for each user in `_entered`: those that wait, and some that no longer do. What a user
        # was served since is seen when its entry comes up.
        self._heap: list[tuple[float, str]] = []
        self._entered: set[str] = set()
        self._floor = 0.0  # what the least served of those that wait had been served when last looked at

    def push(self, standing: Standing, now: float) -> None:
        user, share = standing.request.attributes.user, standing.request.attributes.share
        if share != self._shares.get(user, 1.0):
            self._shares[user] = share
        if user not in self._queues:
            self._queues[user] = OrderedDict()
            self._served[user] = max(self._served.get(user, 0.0), self._floor)
            if user not in self._entered:
                self._entered.add(user)
                heapq.heappush(self._heap, (self._served[user], user))
            if len(self._served) > 2 * (_MAX_USERS + len(self._queues)):
                self._forget()
        self._queues[user][standing.id] = None

    def first(self, now: float) -> RequestId | None:
        while self._heap:
            served, user = self._heap[0]
            if user not in self._queues:
                heapq.heappop(self._heap)
                self._entered.remove(user)
            elif served != self._served[user]:
                heapq.heapreplace(self._heap, (self._served[user], user))
            else:
                self._floor = served
                return next(iter(self._queues[user]))
        return None

    def remove(self, standing: Standing) -> None:
        user = standing.request.attributes.user
        del self._queues[user][standing.id]
        if not self._queues[user]:
            del self._queues[user]

    def served(self, standing: Standing, num_prompt: int, num_output: int) -> None:
        prompt, output = self._weights
        self._charge(
            standing.request.attributes.user,
            output * num_output + (0 if standing.num_preempted else prompt * num_prompt),
        )

    def decoded(self, standings: Sequence[Standing]) -> None:
        for user, num_output in Counter([standing.request.attributes.user for standing in standings]).items():
            self._charge(user, self._weights[1] * num_output)

    def _charge(self, user: str, tokens: float) -> None:
        self._served[user] = self._served.get(user, self._floor) + tokens / self._shares.get(user, 1.0)

    def _forget(self) -> None:
        """Keeps those that wait and the most served of the others, who would gain most by being forgotten."""
        away = sorted((served, user) for user, served in self._served.items() if user not in self._queues)
        for _, user in away[:-_MAX_USERS]:
            del self._served[user]
            self._shares.pop(user, None)

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The newest request of the user who has been served most."""
        return max(running, key=lambda s: (self._served.get(s.request.attributes.user, 0.0), s.arrival, s.id)).id
