"""Several engines on one line of time, with the real router before them.

Always: things happen in order of time; at the same moment changes of the fleet first, then arrivals, then steps. A
replica tells the router of its load and its prefixes at the end of a step, as a live one does; between two such moments
the router counts what it has sent. No request is lost: those of a replica that is lost or drained go on in others from
their tokens, once the step that has begun is over, and those that find no replica wait for one. Where replicas have
roles, requests go on with their keys and values (`moves.py`). With one replica a run is the same as `drive`'s.
"""

import gc
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import RequestId
from chairlift.core.request import Request
from chairlift.core.routing.news import PrefixNews
from chairlift.core.routing.prefixes import span_hashes, span_of
from chairlift.core.routing.rebalancing import Rebalancing, Waiting
from chairlift.core.routing.replicas import work
from chairlift.core.routing.router import Router
from chairlift.core.routing.routing import Routing
from chairlift.core.routing.service import FleetService, period_s
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.fleet.changes import NO_CHANGES, Change, Changes, FleetEvent
from chairlift.lab.sim.fleet.moves import NO_SPLIT, Moves, Split
from chairlift.lab.sim.fleet.replica import NEVER, Replica
from chairlift.lab.sim.frontends import Arriving, Frontends, Seen
from chairlift.lab.workload.requests import num_samples
from chairlift.telemetry.timeline import Timeline

_TICK_S = 1.0  # between two looks of autoscaling


class ReplicaRun:
    """`simulate` for several schedulers, which are alike."""

    def __init__(
        self,
        make_scheduler: Callable[..., Scheduler],
        count: int,
        router: Router,
        cost: CostModel,
        depth: int = 1,
        seed: int = 0,
        changes: Changes = NO_CHANGES,
        skips: bool = True,
        timeline: Timeline | None = None,
        split: Split = NO_SPLIT,
    ) -> None:
        """`make_scheduler` takes `news`, or nothing. `skips`: many steps at once where that is the same; not where
        replicas tell each other of users. `split`: of replicas by roles; then schedulers need host blocks."""
        self.timeline = timeline or Timeline()
        self._make_scheduler = make_scheduler
        num_slots = changes.num_slots(count)
        example = make_scheduler()
        self._service = FleetService() if example.counts_users and num_slots > 1 else None
        self._service_at = 0.0  # when replicas are told next
        self._cost, self._depth, self._skips = cost, depth, skips and self._service is None
        self._span = span_of(example.limits.block_size)
        self._has_news = router.needs_hashes
        self.routing = Routing(router, num_slots, self._span, seed)
        self._rebalancing = Rebalancing(self.routing)
        self._recalled: set[RequestId] = set()  # requests that have left a replica before they began
        self.replicas: list[Replica | None] = [None] * num_slots
        self._roles = split.roles
        self._moves = Moves(split, self.replicas, self._go_on, self._push)
        self.num_open = [0] * num_slots  # requests by replica, as last told
        self._num_live = 0  # all of these
        self._wakes: list[tuple[float, int]] = []  # (moment, replica); outdated where the replica acts at another
        self._held: deque[tuple[Request, float, bool]] = deque()  # with arrival, and whether it is new
        self._moving: list[tuple[float, int, Request]] = []  # (moment, id, request) of replicas that are gone or drain
        self._feed: Iterator[Seen] = iter(())
        self._next: Seen | None = None  # the next to be seen
        self._changes = deque(changes.events)
        self._autoscale = changes.autoscale
        self._starting: dict[int, float] = {}  # replicas, and when they take requests
        self._tick = _TICK_S if changes.autoscale else NEVER
        self._now = 0.0
        self._num_there = 0
        self.replica_s = (
            0.0  # seconds that there were replicas, those that start included, until the last request ended
        )
        for index in range(count):
            self._begin(index)

    def run(
        self,
        arriving: Arriving,
        concurrency: int = 0,
        watch: Callable[[float], None] | None = None,
        frontends: Frontends | None = None,
    ) -> None:
        """Until every request has ended; the arguments are those of `drive`."""
        with _no_collection():
            self._run(arriving, concurrency, watch, frontends)

    def _run(
        self,
        arriving: Arriving,
        concurrency: int,
        watch: Callable[[float], None] | None,
        frontends: Frontends | None,
    ) -> None:
        self._feed = (Frontends() if frontends is None or concurrency else frontends).seen(arriving)
        self._next = next(self._feed, None)
        self._fill(concurrency, 0.0)
        is_open = not concurrency
        while True:
            seen = self._next.at if self._next is not None and is_open else NEVER
            wake, changes = self._next_wake(), self._next_change()
            now = min(seen, wake, changes)
            if self._next is None and min(wake, self._moves.next_at) == NEVER and not (self._held or self._moving):
                break
            if now == NEVER:
                left = "and more that come later" if self._next is not None else "and no other is added"
                raise InvalidConfig(f"--events: no replica is left for {len(self._held)} requests, {left}")
            self._pass_time(now)
            if changes == now:
                self._change(now)
                self._fill(concurrency, now)
            elif seen == now:
                self._send(self._next.arrival if self._next is not None else now, now)
            else:
                self._wake(concurrency, now)
                if watch is not None:
                    watch(now)

    def _pass_time(self, now: float) -> None:
        self.replica_s += self._num_there * (now - self._now)
        self._now = now

    def _next_wake(self) -> float:
        wakes, replicas = self._wakes, self.replicas
        while wakes:
            moment, index = wakes[0]
            replica = replicas[index]
            if replica is not None and replica.wake_at == moment:
                return moment
            heapq.heappop(wakes)
        return NEVER

    def _wake(self, concurrency: int, now: float) -> None:
        """The next replica to act is at the end of a step."""
        _, index = heapq.heappop(self._wakes)
        replica = self.replicas[index]
        assert replica is not None
        replica.wake(now)
        self._tell(index, replica)
        self._moves.step_ended(index, replica, self.routing.replicas.open, now)
        self._rebalance(index, replica, now)
        self._fill(concurrency, now)
        if replica.wake_at == NEVER:
            replica.act()
            self._push(index, replica)

    def _push(self, index: int, replica: Replica) -> None:
        if replica.wake_at != NEVER:
            heapq.heappush(self._wakes, (replica.wake_at, index))

    def _fill(self, concurrency: int, now: float) -> None:
        """Adds requests of a closed loop."""
        while self._next is not None and self._num_live + len(self._held) + len(self._moving) < concurrency:
            self._send(now, now)

    def _send(self, arrival: float, now: float) -> None:
        assert self._next is not None
        request = self._next.request
        if num_samples(request) > 1:
            raise InvalidConfig("n and beam_width of a workload are simulated for one engine; leave --replicas out")
        self.timeline.added((request,), arrival)
        self._route(request, now, now)
        self._next = next(self._feed, None)

    def _route(self, request: Request, arrival: float, now: float, target: int = -1) -> None:
        """To a replica, or to those that wait for one. `target`: the one it was called back for, as bits."""
        among = self._roles.takers(self.routing.replicas.open, bool(request.output)) & target
        if not among:
            self._held.append((replace(request, num_moved=0), arrival, not request.output))
            return
        attributes = request.attributes
        tokens = request.prompt + request.output
        hashes = self._hashes(request) if self.routing.needs_hashes(among) and not request.output else ()
        index = self.routing.route(
            tokens, attributes.prefix_root, attributes.user, among, request.num_moved, hashes=hashes
        )
        replica = self.replicas[index]
        assert replica is not None
        before = replica.wake_at
        replica.take(request, arrival, now)
        self.num_open[index] += 1
        self._num_live += 1
        if request.num_moved:
            self._moves.sent(index, replica, request)
        if replica.wake_at != before:
            self._push(index, replica)

    def _go_on(self, index: int, request: Request, now: float) -> None:
        """A request has left a replica, for one with another role."""
        self.num_open[index] -= 1
        self._num_live -= 1
        self.timeline.moved(request.id, now)
        self._route(request, now, now)

    def _rebalance(self, index: int, replica: Replica, now: float) -> None:
        """Has requests that wait in a replica go where they had better wait; each once."""
        scheduler = replica.engine.scheduler
        takers = partial(self._roles.takers, self.routing.replicas.open, has_made=False)
        if not scheduler.waiting or not self._rebalancing.is_due(index, scheduler.limits.max_step_tokens, takers, now):
            return
        among = takers()
        requests = [each.request for each in scheduler.waiting.values() if scheduler.is_new(each.id)]
        fresh = [request for request in requests if not request.output and request.id not in self._recalled]
        needs_hashes = self.routing.needs_hashes(among)

        def find(number: int) -> Waiting:
            request = fresh[number]
            hashes = self._hashes(request) if needs_hashes else ()
            return Waiting(request.prompt, request.attributes.prefix_root, request.attributes.user, 0, among, hashes)

        lengths = [len(request.prompt) for request in fresh]
        chosen = self._rebalancing.to_recall(index, among, 1.0, lengths, find)
        left = [(replica.let_go(fresh[number].id, 0, now), target) for number, target in chosen]
        if left:
            self._tell(index, replica)
        for request, target in left:
            assert request is not None
            self._recalled.add(request.id)
            self.timeline.moved(request.id, now)
            self._route(request, now, now, 1 << target)

    def _hashes(self, request: Request) -> list[bytes]:
        """Of its prompt's spans, made once for the router and for the news of its replica."""
        prompt, span = request.packed, self._span
        hashes = span_hashes(prompt.tokens, span, request.attributes.prefix_root)
        prompt.hashes = dict(zip(range(span, span * len(hashes) + 1, span), hashes, strict=True))
        return hashes

    def _tell(self, index: int, replica: Replica) -> None:
        num_live = replica.num_live
        self._num_live += num_live - self.num_open[index]
        self.num_open[index] = num_live
        num_running = len(replica.engine.scheduler.running)
        self.routing.tell(index, replica.observer.queued.amount, num_running, replica.num_taken)
        if replica.news is not None and (changes := replica.news.take()) is not None:
            self.routing.learn(index, changes)
        if self._service is not None:
            self._share(index, replica, self._service)

    def _share(self, index: int, replica: Replica, service: FleetService) -> None:
        """Has others count what it has served, at most so often."""
        for each in replica.observer.service.take():
            service.add(index, each)
        if self._now < self._service_at:
            return
        there = {i: each for i, each in enumerate(self.replicas) if each is not None}
        self._service_at = self._now + period_s(len(there))
        for i, services in service.take(there).items():
            there[i].engine.scheduler.served_elsewhere(services, self._now)

    # Changes of the fleet.

    def _next_change(self) -> float:
        given = self._changes[0].at if self._changes else NEVER
        moving = self._moving[0][0] if self._moving else NEVER
        starting = min(self._starting.values()) if self._starting else NEVER
        return min(given, self._tick, starting, moving, self._moves.next_at)

    def _change(self, now: float) -> None:
        if self._moving and self._moving[0][0] == now:
            *_, request = heapq.heappop(self._moving)
            self.timeline.moved(request.id, now)
            self._route(request, now, now)
            return
        if self._moves.next_at == now:
            self._moves.act(now)
            return
        if self._changes and self._changes[0].at == now:
            self._happen(self._changes.popleft(), now)
            return
        for index, moment in list(self._starting.items()):
            if moment == now:
                del self._starting[index]
                self._num_there -= 1  # counted again as it begins
                self._begin(index)
                return
        self._tick += _TICK_S
        self._scale(now)

    def _happen(self, event: FleetEvent, now: float) -> None:
        replica = self.replicas[event.replica]
        if event.change is Change.ADD:
            if replica is None:
                self._begin(event.replica)
            else:
                replica.is_draining = False
                self.routing.replicas.set_open(event.replica, True)
                self._place_held()
        elif event.change is Change.LOSE:
            if replica is not None:
                self._lose(event.replica, replica, now)
        else:
            assert replica is not None
            self.routing.replicas.set_open(event.replica, False)
            self._drain(event.replica, replica, now)

    def _begin(self, index: int) -> None:
        scheduler = self._make_scheduler(news=PrefixNews(self._span) if self._has_news else None)
        is_prefill = self._roles.is_prefill(index)
        replica = Replica(scheduler, self._cost, self._depth, self.timeline, self._skips, is_prefill)
        self.replicas[index] = replica
        self._num_there += 1
        self.routing.begin(index)
        self._place_held()

    def _place_held(self) -> None:
        held, self._held = self._held, deque()
        for request, arrival, is_new in held:
            self._route(request, arrival if is_new else self._now, self._now)
        for index, replica in enumerate(self.replicas):  # requests that had nowhere to go
            if replica is not None and replica.is_draining and replica.num_live:
                self._drain(index, replica, self._now)

    def _lose(self, index: int, replica: Replica, now: float) -> None:
        self.routing.end(index)
        self.replicas[index] = None
        self._num_there -= 1
        self._leave(index, replica, now)

    def _drain(self, index: int, replica: Replica, now: float) -> None:
        """Where no other takes requests, they stay."""
        replica.is_draining = True
        if self.routing.replicas.open:
            self._leave(index, replica, now)
            self._tell(index, replica)

    def _leave(self, index: int, replica: Replica, now: float) -> None:
        """Its requests move when the step that has begun is over."""
        replica.interrupt(now)
        self._moves.forget(index)
        left, moment = replica.leave(), max(now, replica.clock.now())
        for request in left:
            heapq.heappush(self._moving, (moment, request.id, request))
        replica.wake_at = NEVER
        self._num_live -= self.num_open[index]
        self.num_open[index] = 0

    def _scale(self, now: float) -> None:
        assert self._autoscale is not None
        replicas, starting = self.routing.replicas, self._starting
        there = [index for index in range(replicas.count) if replicas.open >> index & 1]
        load = sum(replicas.load(index) for index in there) + sum(work(len(held[0].prompt)) for held in self._held)
        count = len(there) + len(starting)
        wanted = self._autoscale.scaling.want(load, count, now)
        free = [index for index, replica in enumerate(self.replicas) if replica is None and index not in starting]
        for index in free[: max(0, wanted - count)]:
            starting[index] = now + self._autoscale.start_s
            self._num_there += 1
        for index in there[::-1][: max(0, min(count - wanted, len(there) - 1))]:
            replica = self.replicas[index]
            assert replica is not None
            self._lose(index, replica, now)  # as a drained one that is then ended


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the collector of cycles, which would look at millions of blocks again and again: there are no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
