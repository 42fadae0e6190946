"""Routes requests by a rule, live and simulated: the one place that joins the rule and what is known of replicas.

Always: a request goes to a replica that may take it. A rule that raises or names another is replaced for good by the
plain one, least loaded, and noted in `failures`. What is sent counts at once in the load of its replica, until the
replica's own word includes it.
"""

from collections import deque
from collections.abc import Sequence

from chairlift.core.packed import packed
from chairlift.core.routing.news import PrefixChanges
from chairlift.core.routing.prefixes import span_hashes
from chairlift.core.routing.replicas import AdapterHomes, Replicas, work
from chairlift.core.routing.router import Asked, Router
from chairlift.core.routing.rules import LeastLoaded


class Routing:
    def __init__(self, router: Router, count: int, span: int = 0, seed: int = 0) -> None:
        """`span`: tokens that a hash names; 0: not known yet."""
        self.replicas = Replicas(count, seed)
        self.span = span
        self.failures: list[str] = []
        self._router = router
        self._sent: list[deque[int]] = [deque() for _ in range(count)]  # the work of requests not taken yet
        self._taken = [0] * count  # requests, by its own word
        self._versions = [0] * count  # of the prefixes it has told
        self._homes = AdapterHomes()

    def grow(self) -> None:
        """One replica more, which is not there yet."""
        self.replicas.grow()
        self._sent.append(deque())
        self._taken.append(0)
        self._versions.append(0)

    def route(
        self, tokens: Sequence[int], salt: str, user: str, among: int, num_moved: int = 0, hashes: Sequence[bytes] = (),
        adapter: int = 0,
    ) -> int:  # fmt: skip
        """The replica of `among` (bits, not empty) for a request with these known tokens, which is sent there.
        `num_moved`: leading tokens that need not be computed anywhere. `hashes`: of their spans, if they were made.
        Replicas that have its adapter are preferred."""
        asked, among = self._asked(tokens, salt, user, adapter, among, hashes)
        chosen = self._choose(asked, among)
        if adapter:
            self._homes.add(adapter, chosen)
        self.replicas.prefixes.expect(chosen, asked.hashes)
        amount = work(len(tokens)) - work(num_moved)
        self._sent[chosen].append(amount)
        self.replicas.add(chosen, amount)
        return chosen

    def choose(
        self, tokens: Sequence[int], salt: str, user: str, adapter: int, among: int, hashes: Sequence[bytes]
    ) -> int:
        """Where `route` would send a request."""
        return self._choose(*self._asked(tokens, salt, user, adapter, among, hashes))

    def _asked(
        self, tokens: Sequence[int], salt: str, user: str, adapter: int, among: int, hashes: Sequence[bytes]
    ) -> tuple[Asked, int]:
        """What the rule is asked, and among which replicas."""
        if not hashes and self.needs_hashes(among):
            hashes = span_hashes(packed(tokens), self.span, salt)
        if adapter:
            among = self._homes.among(adapter, among, self.replicas)
        return Asked(len(tokens), self.span, hashes, user), among

    @property
    def rebalance_s(self) -> float:
        """Between two looks of `Rebalancing`; 0: none."""
        return self._router.rebalance

    def needs_hashes(self, among: int) -> bool:
        """Whether the rule looks at prefixes to choose among these replicas."""
        return self._router.needs_hashes and self.span > 0 and among & (among - 1) > 0

    def _choose(self, asked: Asked, among: int) -> int:
        try:
            chosen = self._router.choose(asked, among, self.replicas)
            if not 0 <= chosen < self.replicas.count or not among >> chosen & 1:
                raise ValueError(f"choose() named {chosen!r}, which cannot take the request")
        except Exception as error:
            self.failures.append(f"the router failed ({type(error).__name__}: {error})")
            rebalance, self._router = self._router.rebalance, LeastLoaded()
            self._router.rebalance = rebalance
            return self._router.choose(asked, among, self.replicas)
        return chosen

    def begin(self, replica: int) -> None:
        """The replica is there, with nothing of the one before."""
        self._sent[replica].clear()
        self._taken[replica] = self._versions[replica] = 0
        self.replicas.prefixes.clear(replica)
        self._homes.clear(replica)
        self.replicas.tell(replica, 0, 0)
        self.replicas.set_open(replica, True)

    def end(self, replica: int) -> None:
        """The replica is gone."""
        self.replicas.set_open(replica, False)
        self.replicas.prefixes.clear(replica)

    def tell(self, replica: int, num_queued: int, num_running: int, num_taken: int) -> None:
        """A replica's own word: the work in its queue, requests running, and how many requests it has taken in from
        here since its beginning. Those that were sent since are added."""
        sent = self._sent[replica]
        for _ in range(min(num_taken - self._taken[replica], len(sent))):
            sent.popleft()
        self._taken[replica] = num_taken
        self.replicas.tell(replica, num_queued + sum(sent), num_running)

    def learn(self, replica: int, changes: PrefixChanges) -> bool:
        """Takes in changes of a replica's prefixes; False when some before them are missing, and all are needed."""
        if changes.version != self._versions[replica] + 1:
            return False
        self._versions[replica] = changes.version
        self.replicas.prefixes.lose(replica, changes.lost)
        self.replicas.prefixes.publish(replica, changes.published)
        return True

    def learn_whole(self, replica: int, everything: PrefixChanges) -> None:
        """Takes in all of a replica's prefixes."""
        self._versions[replica] = everything.version
        self.replicas.prefixes.clear(replica)
        self.replicas.prefixes.publish(replica, everything.published)


_SPAN = 2


def failure(router: Router) -> str | None:
    """What goes wrong with this rule on a handful of requests, or None. Rules keep state, so it cannot be used
    afterwards."""
    routing = Routing(router, count=4, span=_SPAN)
    for replica in range(3):
        routing.begin(replica)
    for i in range(16):
        if i == 8:
            routing.end(1)
        routing.route((i % 3,) * (1 + i % 7), "", ("", "a", "b")[i % 3], routing.replicas.open)
        routing.tell(2, 10 * i, i, i // 4)
    return routing.failures[0] if routing.failures else None
