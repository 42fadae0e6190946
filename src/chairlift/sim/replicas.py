"""Several engines on one line of time, with the real router before them.

Always: things happen in order of time. A replica tells the router of its load and its prefixes at the end of a step, as
a live one does; between two such moments the router counts what it has sent. With one replica a run is the same as
`drive`'s. Each replica has a clock of its own, which stands at its next action.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence

from chairlift.core.engine import Engine
from chairlift.core.events import Event
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Unobserved
from chairlift.core.request import Request
from chairlift.core.routing.hashes import span_of
from chairlift.core.routing.news import PrefixNews
from chairlift.core.routing.queued import QueuedWork
from chairlift.core.routing.router import Router
from chairlift.core.routing.routing import Routing
from chairlift.core.scheduling.pool import BlockPool
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.sim.clock import VirtualClock
from chairlift.sim.cost import CostModel
from chairlift.sim.drive import Arriving, Delay, arrive, at_once
from chairlift.sim.runner import SimRunner
from chairlift.telemetry.timeline import Timeline


class _Observer(Unobserved):
    """Adds one replica to the timeline of all, and counts its queue."""

    def __init__(self, timeline: Timeline, pool: BlockPool) -> None:
        self.queued = QueuedWork()  # type: ignore[abstract]  # what it does not override does nothing
        self._timeline = timeline
        self._pool = pool

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        self.queued.added(samples, now)
        self._timeline.added(samples, now)

    def planned(self, plan: StepPlan | None, now: float) -> None:
        if plan is not None:
            self._timeline.stepped(plan.num_decoding, self._pool.num_held, self._pool.num_shared)

    def happened(self, events: Sequence[Event]) -> None:
        self.queued.happened(events)
        self._timeline.happened(events)


class Replica:
    def __init__(self, scheduler: Scheduler, cost: CostModel, depth: int, timeline: Timeline) -> None:
        self.clock = VirtualClock()
        self.is_awake = False
        self.num_taken = 0
        self.observer = _Observer(timeline, scheduler.pool)  # type: ignore[abstract]  # likewise
        runner = SimRunner(cost, scheduler.limits.block_size, self.clock, depth)
        self.engine = Engine(scheduler, runner, self.clock, self.observer)
        self.news = scheduler.pool.news = PrefixNews(span_of(scheduler.limits.block_size))

    def take(self, request: Request, arrival: float, now: float) -> None:
        self.clock.advance_to(now)
        self.num_taken += 1
        arrive(self.engine, (request,), arrival)

    def act(self) -> float | None:
        """Makes a step, unless one is to be planned later; the moment of the next action, None without work."""
        engine = self.engine
        if not engine.has_work:
            return None
        engine.begin()
        if self.clock.now() < engine.plan_at:
            return engine.plan_at
        engine.step()
        return self.clock.now()


class ReplicaRun:
    """`simulate` for several schedulers, which are alike."""

    def __init__(
        self, schedulers: Sequence[Scheduler], router: Router, cost: CostModel, depth: int = 1, seed: int = 0
    ) -> None:
        self.timeline = Timeline()
        self.replicas = [Replica(scheduler, cost, depth, self.timeline) for scheduler in schedulers]
        self.routing = Routing(router, len(schedulers), span_of(schedulers[0].limits.block_size), seed)
        for index in range(len(schedulers)):
            self.routing.begin(index)
        self._wakes: list[tuple[float, int]] = []  # (moment, replica)
        self._live = [0] * len(schedulers)  # requests, as last told
        self._feed: Iterator[tuple[float, Request]] = iter(())
        self._next: tuple[float, Request] | None = None  # the next to arrive

    def run(
        self,
        arriving: Arriving,
        concurrency: int = 0,
        watch: Callable[[float], None] | None = None,
        delay: Delay = at_once,
    ) -> None:
        """Until every request has ended; the arguments are those of `drive`."""
        self._feed = iter(arriving)
        self._next = next(self._feed, None)
        self._fill(concurrency, 0.0)
        while self._next is not None or self._wakes:
            if self._next is not None and not concurrency:
                arrival, request = self._next
                seen = arrival + delay(request)
                if not self._wakes or seen <= self._wakes[0][0]:  # at the same moment requests arrive first
                    self._send(arrival, seen)
                    continue
            now, index = heapq.heappop(self._wakes)
            self._tell(index)
            self._fill(concurrency, now)
            self._act(index, now)
            if watch is not None:
                watch(now)

    def _fill(self, concurrency: int, now: float) -> None:
        """Adds requests of a closed loop."""
        while self._next is not None and sum(self._live) < concurrency:
            self._send(now, now)

    def _send(self, arrival: float, now: float) -> None:
        assert self._next is not None
        self._route(self._next[1], arrival, now)
        self._next = next(self._feed, None)

    def _route(self, request: Request, arrival: float, now: float) -> None:
        attributes = request.attributes
        among = self.routing.replicas.open
        index = self.routing.route(request.prompt, attributes.cache_salt, attributes.user, among)
        replica = self.replicas[index]
        self._live[index] += 1
        replica.take(request, arrival, now)
        if not replica.is_awake:
            replica.is_awake = True
            heapq.heappush(self._wakes, (now, index))

    def _act(self, index: int, now: float) -> None:
        replica = self.replicas[index]
        replica.clock.advance_to(now)
        moment = replica.act()
        replica.is_awake = moment is not None
        if moment is not None:
            heapq.heappush(self._wakes, (moment, index))

    def _tell(self, index: int) -> None:
        replica = self.replicas[index]
        num_running = len(replica.engine.scheduler.running)
        self._live[index] = len(replica.engine.scheduler.live)
        self.routing.tell(index, replica.observer.queued.amount, num_running, replica.num_taken)
        changes = replica.news.take()
        if changes is not None:
            self.routing.learn(index, changes)
