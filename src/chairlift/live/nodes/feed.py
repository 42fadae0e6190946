"""A front end's view of the members' list: links come with members, and go with those that cannot be reached either.

Always: a member's link is kept as long as it works, whatever the list says: the list may be gone, or may just have
begun anew. A link that is broken is kept while its member is listed, also as one that starts again: what may have
crashed it waits for it. One that has said that it leaves is dropped at once; what comes later at its address is new,
and not drained as that was.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec
import zmq
import zmq.asyncio

from chairlift.live.nodes.messages import Ended, Left, Members, Published
from chairlift.live.recovery.step_note import InterruptedWork
from chairlift.live.wire.curve import Curve
from chairlift.live.wire.replica_links import ReplicaLinks

GRACE_S = 5.0  # a link is broken and its member not listed before it is dropped
_FRESH_S = 5.0  # that the word how an engine ended is of use
_UNREACHABLE_S = 15.0  # a listed member without a link, before a line says so
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    replica: int
    lost: float  # since when it has neither link nor listing
    unreachable: float  # since when it is listed without a link
    is_told: bool = False


@dataclass
class MembersFeed:
    replicas: ReplicaLinks
    curve: Curve
    now: Callable[[], float] = time.monotonic
    _known: dict[str, _Known] = field(default_factory=dict)  # by address
    _ends: dict[str, tuple[float, InterruptedWork]] = field(default_factory=dict)

    async def run(self, address: str) -> None:
        """Hears the list until cancelled. `address`: where it publishes."""
        decoder = msgspec.msgpack.Decoder(Published)
        socket = zmq.asyncio.Context.instance().socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.subscribe(b"")
        socket.connect(address)
        try:
            while True:
                message = decoder.decode(await socket.recv())
                if isinstance(message, Members):
                    self.hear(message)
                elif isinstance(message, Left):
                    self.hear_left(message)
                else:
                    self.hear_end(message)
        finally:
            socket.close()

    def hear(self, members: Members) -> None:
        now = self.now()
        listed = {engine.address: engine.number for engine in members.engines}
        for address in [each for each in listed if each not in self._known]:
            replica = self.replicas.add(address, self.curve, partial(self._take_end, address), listed[address])
            self._known[address] = _Known(replica, now, now)
            _log.debug("replica %d has joined: %s", listed[address], address)
        for address, known in list(self._known.items()):
            is_linked = self.replicas.is_linked(known.replica)
            if is_linked or address in listed or address in members.starting:
                known.lost = now
            if address in listed:
                self.replicas.renumber(known.replica, listed[address])
            if is_linked or address not in listed:
                known.unreachable, known.is_told = now, False
            elif not known.is_told and now - known.unreachable >= _UNREACHABLE_S:
                known.is_told = True
                _log.warning("%s is a member but cannot be reached from here; open its port in firewalls", address)
            if now - known.lost >= GRACE_S:
                self._drop(address)

    def hear_left(self, left: Left) -> None:
        for address in left.addresses:
            if address in self._known:
                self._drop(address)

    def _drop(self, address: str) -> None:
        self.replicas.remove(self._known.pop(address).replica)
        _log.debug("%s is gone", address)

    def hear_end(self, ended: Ended) -> None:
        self._ends[ended.address] = self.now(), InterruptedWork(ended.keys, ended.was_killed)

    def _take_end(self, address: str) -> InterruptedWork | None:
        """How the engine there ended, once."""
        told, work = self._ends.pop(address, (0.0, None))
        return work if work is not None and self.now() - told < _FRESH_S else None
