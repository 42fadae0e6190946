"""The user served least first: every user gets the same share of the tokens, times its weight.

Each user has a virtual token counter: a prompt token counts `prompt`, an output token `output`, a token that is
recomputed after a preemption nothing, all divided by the user's weight (`Attributes.share`, the latest counts). An idle
user saves nothing up: its counter rises to that of the least served waiting user. Requests of one user
are served in order of arrival, those that yielded first.

While the running set is full, the user that holds most of it, per share, yields its newest requests to the least served
waiting user, as long as that one then holds no more.

What other replicas serve a user counts here too (`served_elsewhere`), and raises the level at which an idle user
begins: that of the least served user that waits here or was just served there.

Bound: of two users with waiting requests, one falls behind the other by at most a prompt and the output of the
requests that the other has running; over several replicas by that in each of them, and what all serve between two
tellings, as far as the replicas where it waits can serve it.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from chairlift.core.ids import RequestId
from chairlift.core.policy import Policy, RequestView, Service

_MAX_USERS = 10_000  # remembered beyond those with waiting requests; a forgotten user starts anew


class FairShare(Policy):
    skips_steady = True

    def __init__(self, prompt: float = 1.0, output: float = 2.0) -> None:
        if prompt < 0 or output <= 0:
            raise ValueError("prompt must not be negative, output must be above 0")
        self._weights = (prompt, output)
        self._served: dict[str, float] = {}  # tokens per share
        self._shares: dict[str, float] = {}  # weights other than 1
        self._queues: dict[str, OrderedDict[RequestId, int]] = {}  # samples of waiting requests by user
        # (served, user), once for each user in `_entered`: users with waiting requests, and some without. An entry is
        # brought up to date when it reaches the top.
        self._heap: list[tuple[float, str]] = []
        self._entered: set[str] = set()
        self._floor = 0.0  # the least counter of users with waiting requests, when last looked at

    def owner(self, view: RequestView) -> str:
        """Whose share it is served from."""
        return view.request.attributes.user

    def push(self, view: RequestView, now: float) -> None:
        user = self.owner(view)
        self._weigh(user, view.request.attributes.share)
        if user not in self._queues:
            self._queues[user] = OrderedDict()
            self._served[user] = max(self._served.get(user, 0.0), self._floor)
            if user not in self._entered:
                self._entered.add(user)
                heapq.heappush(self._heap, (self._served[user], user))
            self._forget_some()
        self._queues[user][view.id] = 1 + view.num_pending_forks
        if view.num_preempted:
            self._queues[user].move_to_end(view.id, last=False)

    def first(self, now: float) -> RequestId | None:
        user = self._first_user()
        return None if user is None else next(iter(self._queues[user]))

    def yielding(self, running: Sequence[RequestView], now: float) -> Sequence[RequestId]:
        user = self._first_user()
        if user is None:
            return ()
        held: Counter[str] = Counter()
        for view in running:
            held[self.owner(view)] += 1 + view.num_pending_forks
        most = max(held, key=lambda owner: (held[owner] / self._share(owner), owner))
        if self._served.get(most, 0.0) <= self._served[user]:
            return ()  # what yields would be admitted again at once
        # A request that is still in its prompt has no token yet.
        able = [view.id for view in running if self.owner(view) == most and view.num_known - view.num_computed == 1]
        num_yielding = 0
        for num_samples in self._queues[user].values():
            num_then = num_yielding + num_samples
            is_above = (held[user] + num_then) / self._share(user) > (held[most] - num_then) / self._share(most)
            if is_above or num_then > len(able):
                break
            num_yielding = num_then
        return able[::-1][:num_yielding]

    def _share(self, user: str) -> float:
        return self._shares.get(user, 1.0)

    def _first_user(self) -> str | None:
        while self._heap:
            served, user = self._heap[0]
            if user not in self._queues:
                heapq.heappop(self._heap)
                self._entered.remove(user)
            elif served != self._served[user]:
                heapq.heapreplace(self._heap, (self._served[user], user))
            else:
                self._floor = served
                return user
        return None

    def remove(self, view: RequestView) -> None:
        user = self.owner(view)
        del self._queues[user][view.id]
        if not self._queues[user]:
            del self._queues[user]

    def served(self, view: RequestView, num_prompt: int, num_output: int) -> None:
        prompt, output = self._weights
        tokens = output * num_output + (0 if view.num_preempted else prompt * num_prompt)
        self._charge(self.owner(view), tokens)

    def decoded(self, views: Sequence[RequestView]) -> None:
        for user, num_output in Counter([self.owner(view) for view in views]).items():
            self._charge(user, self._weights[1] * num_output)

    def served_elsewhere(self, services: Sequence[Service]) -> None:
        prompt, output = self._weights
        for user, share, num_prompt, num_output in services:
            self._weigh(user, share)
            self._charge(user, prompt * num_prompt + output * num_output)
        active = [self._served[user] for user in (*self._queues, *(service.user for service in services))]
        self._floor = max(self._floor, min(active, default=0.0))
        self._forget_some()

    def _weigh(self, user: str, share: float) -> None:
        if share != self._shares.get(user, 1.0):
            self._shares[user] = share

    def _charge(self, user: str, tokens: float) -> None:
        self._served[user] = self._served.get(user, self._floor) + tokens / self._share(user)

    def _forget_some(self) -> None:
        """Keep users with waiting requests, and the most served of the others: they would gain most."""
        if len(self._served) <= 2 * (_MAX_USERS + len(self._queues)):
            return
        idle = sorted((served, user) for user, served in self._served.items() if user not in self._queues)
        for _, user in idle[:-_MAX_USERS]:
            del self._served[user]
            self._shares.pop(user, None)

    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        """The newest request of the most served user."""
        return max(running, key=lambda s: (self._served.get(self.owner(s), 0.0), s.arrival, s.id)).id


class InTurn(FairShare):
    """Users in turn, and of one user its bodies (`Attributes.group`): one with many inputs holds up neither those of
    other users nor its own with few. Requests of one body are served in order."""

    skips_steady = True

    def __init__(self, prompt: float = 1.0, output: float = 2.0) -> None:
        super().__init__(prompt, output)
        self._bodies: dict[str, _Bodies] = {}  # of users with waiting requests

    def push(self, view: RequestView, now: float) -> None:
        super().push(view, now)
        self._bodies.setdefault(self.owner(view), _Bodies()).push(view, now)

    def first(self, now: float) -> RequestId | None:
        user = self._first_user()
        return None if user is None else self._bodies[user].first(now)

    def remove(self, view: RequestView) -> None:
        super().remove(view)
        user = self.owner(view)
        self._bodies[user].remove(view)
        if user not in self._queues:
            del self._bodies[user]

    def served(self, view: RequestView, num_prompt: int, num_output: int) -> None:
        super().served(view, num_prompt, num_output)
        bodies = self._bodies.get(self.owner(view))
        if bodies is not None:
            bodies.served(view, num_prompt, num_output)


class _Bodies(FairShare):
    """Of one user."""

    def owner(self, view: RequestView) -> str:
        return view.request.attributes.group
