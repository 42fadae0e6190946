"""The replicas of a front end: a link to each, what is known of it, and which of them may take a request.

Always: a link works until its replica is removed or the front end ends; one that is broken by a bug ends all. The place
of a replica that was removed is taken by the next. How an engine ended is polled for, as its parent or node tells it,
but not at once; one of which no word comes counts as killed.

Knows requests only as `Requests`, which is told what happens to replicas and sends to them by their places.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from chairlift.core.attributes import Attributes
from chairlift.core.routing.news import PrefixChanges
from chairlift.core.routing.prefixes import span_of
from chairlift.core.routing.replicas import members
from chairlift.core.routing.roster import Role, Roster
from chairlift.core.routing.router import Router
from chairlift.core.routing.routing import Routing
from chairlift.live.adapters.unloading import Unloads
from chairlift.live.recovery.step_note import InterruptedWork
from chairlift.live.wire import messages
from chairlift.live.wire.curve import Curve
from chairlift.live.wire.link import Link
from chairlift.live.wire.service_told import ServiceTold
from chairlift.live.wire.watch_client import Watched

_LOOK_S = 0.02  # between two looks how an engine ended
# After so many without a word it counts as killed.
_MAX_LOOKS = 100
_REMOTE_LOOKS = 50
_log = logging.getLogger(__name__)

Look = Callable[[], InterruptedWork | None]  # what a dead engine was busy with; None: not known yet


class Requests(Protocol):
    """The requests of a front end, which are told what happens to a replica, by its place."""

    def hear_step(self, replica: int, step: messages.Step) -> None: ...

    def hear(self, message: messages.Moved | messages.Kept) -> None: ...

    def welcome(self, replica: int, ready: messages.Ready) -> None:
        """It is there, and takes what stayed with it and what waits for any."""
        ...

    def leave(self, replica: int) -> None:
        """It drains while others take requests."""
        ...

    def judge(self, replica: int, left: InterruptedWork) -> int:
        """Its engine was busy with this when it died. How many requests that proves guilty."""
        ...

    def lose(self, replica: int) -> None:
        """It is gone for good, as far as is known."""
        ...

    def has_adapter(self, adapter: int) -> bool:
        """Whether one of them wants it."""
        ...


@dataclass(slots=True)
class _Place:
    """What belongs to the replica in a place."""

    link: Link
    look: Look
    num_looks: int  # before its engine counts as killed
    next_look: asyncio.TimerHandle | None = None
    running: asyncio.Task[None] | None = None  # the link
    num_proven: int = 0  # requests found guilty, to be told to the next engine


class ReplicaLinks:
    def __init__(
        self,
        requests: Requests,
        name: str,
        local: Sequence[tuple[str, Look]],
        router: Router,
        is_cluster: bool,
        roles: Sequence[Role],
    ) -> None:
        """`local`: addresses of the replicas on this machine, and how to look how their engines ended, which is done
        where there are several. `is_cluster`: others may be added. `roles`: of each, if they have any."""
        self.routing = Routing(router, len(local))
        self.roster = Roster(roles)
        self.watched = Watched(self.send_if_ready)
        self.service = ServiceTold(self.send_if_ready)
        self._requests = requests
        self._name = name
        self._is_cluster = is_cluster
        self._unloads = Unloads(self._ask_to_unload, requests.has_adapter)
        self._is_ready = asyncio.Event()
        self._broken: asyncio.Future[None] | None = None  # while running
        self._left: set[int] = set()  # places of replicas that were removed
        self._places = [
            _Place(self._link(replica, address, None, replica), look, _MAX_LOOKS)
            for replica, (address, look) in enumerate(local)
        ]

    def _link(self, replica: int, address: str, curve: Curve | None, number: int) -> Link:
        return Link(address, self._name, partial(self._hear, replica), partial(self._lose, replica), curve, number)

    async def run(self) -> None:
        """Stays connected until cancelled; a broken wire is a bug, and raises."""
        self._broken = asyncio.get_running_loop().create_future()
        try:
            for place in self._places:
                self._start(place)
            await self._broken
        finally:
            self.watched.client.lose()
            await self._stop_all()

    def _start(self, place: _Place) -> None:
        place.running = asyncio.ensure_future(place.link.run())
        place.running.add_done_callback(self._end)

    def _end(self, running: asyncio.Task[None]) -> None:
        error = None if running.cancelled() else running.exception()
        if error is not None and self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _stop_all(self) -> None:
        self._broken = None
        tasks = [place.running for place in self._places if place.running is not None]
        for place in self._places:
            _stop(place)
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, address: str, curve: Curve, look: Look, number: int) -> int:
        """The place of a replica on another machine. It takes requests once it answers. `number`: for operators."""
        replica = min(self._left, default=len(self._places))
        place = _Place(self._link(replica, address, curve, number), look, _REMOTE_LOOKS)
        if replica in self._left:
            self._left.remove(replica)
            self._places[replica] = place
        else:
            self.routing.grow()
            self._places.append(place)
        if self._broken is not None:
            self._start(place)
        return replica

    def remove(self, replica: int) -> None:
        """A replica that is gone, for good as far as is known: what stayed with it goes on elsewhere."""
        place = self._places[replica]
        _stop(place)
        was_ready = place.link.is_ready
        place.link.info, place.num_proven = None, 0
        self._left.add(replica)
        _end_looks(place)
        if was_ready:
            self._forget(replica)
        self.roster.drain(replica, False)
        self._requests.lose(replica)

    def renumber(self, replica: int, number: int) -> None:
        self._places[replica].link.number = number

    def is_linked(self, replica: int) -> bool:
        return self._places[replica].link.is_ready

    @property
    def are_several(self) -> bool:
        return len(self._places) > 1

    @property
    def is_ready(self) -> bool:
        return self._is_ready.is_set()

    async def until_ready(self) -> None:
        """Until there is one."""
        await self._is_ready.wait()

    @property
    def num_running(self) -> int:
        return sum(place.link.num_running for place in self._places)

    @property
    def num_waiting(self) -> int:
        return sum(place.link.num_waiting for place in self._places)

    @property
    def tightest(self) -> messages.EngineInfo | None:
        """Of the engine with the tightest limits, there or expected back; None: no engine yet, or all were removed."""
        known = [place.link.info for place in self._places if place.link.info is not None]
        return min(known, key=lambda info: (info.limits.max_pool_tokens, info.limits.max_model_len), default=None)

    def info(self, replica: int) -> messages.EngineInfo | None:
        """Of its last engine."""
        return self._places[replica].link.info

    def loads(self) -> list[dict[str, object]]:
        """Each replica as operators see it, by number."""
        there = [(each.link, replica) for replica, each in enumerate(self._places) if replica not in self._left]
        return [
            {
                "replica": link.number,
                **link.shown(self.roster.is_drained(replica)),
                "is_watched": replica == self.watched.replica,
                "queued_tokens": self.routing.replicas.queued[replica] if link.is_ready else 0,
                "known_prefixes": self.routing.replicas.prefixes.num_held(replica),
            }
            for link, replica in sorted(there, key=lambda each: (each[0].number, each[1]))
        ]

    def takers(self, fingerprint: str | None, has_made: bool = False) -> int:
        """Replicas that may take a request which began with this fingerprint (None: it has not), as bits. `has_made`:
        any token."""
        return self.roster.takers(fingerprint, has_made, len(self._places) - len(self._left))

    def route(
        self, tokens: Sequence[int], attributes: Attributes, takers: int, num_moved: int, target: int | None
    ) -> int:
        """Which of the takers a request with these known tokens is sent to: the target if that is open, else the
        router's choice. `num_moved`: leading tokens that need not be computed anywhere."""
        if target is not None:
            takers = takers & self.routing.replicas.open & 1 << target or takers
        replica = self.routing.route(
            tokens, attributes.prefix_root, attributes.user, takers, num_moved, adapter=attributes.adapter
        )
        for failure in self.routing.failures:
            _log.warning("%s; the least loaded replica is chosen from here on", failure)
        self.routing.failures.clear()
        return replica

    def drain(self, number: int, is_on: bool) -> bool:
        """Asks a replica to be left by its requests, or to take some again; False when it is not there."""
        links = [place.link for place in self._places]
        return any(link.number == number and link.send_if_ready(messages.Drain(is_on)) for link in links)

    async def unload(self, adapter: int) -> None:
        """Has all replicas forget an adapter that is offered no more; returns when its last request has ended."""
        await self._unloads.wait(adapter)

    def _ask_to_unload(self, adapter: int) -> list[int]:
        ready = members(self.roster.ready)
        for replica in ready:
            self.send(replica, messages.Unload(adapter))
        return ready

    def send(self, replica: int, message: messages.ToEngine) -> None:
        self._places[replica].link.send(message)

    def send_if_ready(self, replica: int, message: messages.ToEngine) -> bool:
        return self._places[replica].link.send_if_ready(message)

    def _hear(self, replica: int, message: messages.FromEngine) -> None:
        if isinstance(message, messages.Step):
            self.routing.tell(replica, message.queued, message.num_running, message.num_taken)
            self._requests.hear_step(replica, message)
        elif isinstance(message, messages.Moved | messages.Kept):
            self._requests.hear(message)
        elif isinstance(message, messages.Unloaded):
            self._unloads.hear(replica, message.adapter)
        elif isinstance(message, messages.Prefixes):
            self._learn(replica, message)
        elif isinstance(message, messages.Draining):
            self._set_draining(replica, message.is_on)
        elif isinstance(message, messages.Snapshot | messages.Explained):
            self.watched.hear(replica, message)
        elif isinstance(message, messages.Ready):
            self._welcome(replica, message)
            self.watched.come(replica)

    def _learn(self, replica: int, message: messages.Prefixes) -> None:
        changes = PrefixChanges(message.version, message.published, message.lost)
        if message.is_whole:
            self.routing.learn_whole(replica, changes)
        elif not self.routing.learn(replica, changes):
            self.send(replica, messages.AskPrefixes())

    def _welcome(self, replica: int, ready: messages.Ready) -> None:
        place = self._places[replica]
        self.routing.span = span_of(ready.info.limits.block_size)
        self.routing.begin(replica)
        _end_looks(place)
        self.roster.come(replica, ready.info.fingerprint)
        self.service.come(replica, ready.info.counts_users)
        was_drained = self.roster.is_drained(replica)
        if was_drained and not ready.is_draining:  # the engine before was, and has died
            self.send(replica, messages.Drain(True))
        self._set_draining(replica, ready.is_draining or was_drained)
        self._is_ready.set()
        for _ in range(place.num_proven):
            self.send(replica, messages.Proven())
        place.num_proven = 0
        self._requests.welcome(replica, ready)

    def _set_draining(self, replica: int, is_on: bool) -> None:
        self.roster.drain(replica, is_on)
        self.routing.replicas.set_open(replica, not is_on)
        if is_on and self.routing.replicas.open:
            self._requests.leave(replica)

    def _lose(self, replica: int) -> None:
        """The engine of a replica is gone: requests move to others, if there are any, or wait for the next engine."""
        self._forget(replica)
        if self.are_several or self._is_cluster:
            self._look(replica, self._places[replica].num_looks)

    def _forget(self, replica: int) -> None:
        self.routing.end(replica)
        self.roster.go(replica)
        self._unloads.lose(replica)
        self.service.go(replica)
        self.watched.go(replica, members(self.roster.ready))
        if not self.roster.ready:
            self._is_ready.clear()

    def _look(self, replica: int, num_left: int) -> None:
        """Has requests judged when it is known how the engine ended, once; not if the next engine is ready before."""
        place = self._places[replica]
        left = place.look()
        if left is None and num_left:
            place.next_look = asyncio.get_running_loop().call_later(_LOOK_S, self._look, replica, num_left - 1)
            return
        place.num_proven += self._requests.judge(replica, left or InterruptedWork({}, was_killed=True))


def _stop(place: _Place) -> None:
    if place.running is not None:
        place.running.cancel()
        place.running = None


def _end_looks(place: _Place) -> None:
    if place.next_look is not None:
        place.next_look.cancel()
        place.next_look = None
