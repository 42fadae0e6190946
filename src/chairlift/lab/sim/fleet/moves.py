"""Requests that go from prefill replicas to decode replicas with their keys and values: what a live server's front
ends and `live/moving` do with messages and threads, as moments on the line of time.

    token -> leaves in the next plan -> copied to a piece, one at a time -> let go between two steps, and routed
          -> fetched by the target, some at a time -> arrives, or is computed where it has no room or is too late

Always: a request that was asked to leave is let go once, unless it ends before; one that expects a piece is told once
whether it came. The host has as much memory for pieces that wait to be fetched as for blocks. Messages take no time.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from chairlift.core.events import Exported, Token
from chairlift.core.ids import RequestId
from chairlift.core.memory.pages import Pages
from chairlift.core.moving import KEPT_S, NUM_FETCHES, MovePrice, fetch_limit_s, with_room_to_leave
from chairlift.core.request import Request
from chairlift.core.routing.roster import Roles
from chairlift.lab.sim.fleet.replica import NEVER, Replica


class Split(NamedTuple):
    roles: Roles
    price: MovePrice


NO_SPLIT = Split(Roles(), MovePrice(0, Pages(1)))


class _Kind(IntEnum):
    COPIED = 0
    LET_GO = 1
    FETCHED = 2


class _Due(NamedTuple):
    at: float
    request: RequestId
    replica: int
    kind: _Kind
    num_tokens: int  # whose keys and values these are; 0: they are computed again


@dataclass(slots=True)
class _Side:
    """The moves of one replica."""

    asked: dict[RequestId, bool] = field(default_factory=dict)  # to leave, and whether the scheduler was
    to_copy: deque[Exported] = field(default_factory=deque)
    is_copying: bool = False
    pieces: dict[RequestId, tuple[float, int]] = field(default_factory=dict)  # until when, and their blocks
    fetches: list[float] = field(default_factory=lambda: [0.0] * NUM_FETCHES)  # when each has ended


class Moves:
    def __init__(
        self,
        split: Split,
        replicas: Sequence[Replica | None],
        go_on: Callable[[int, Request, float], None],
        wake: Callable[[int, Replica], None],
    ) -> None:
        """`go_on`: a request has left a replica. `wake`: a replica has something to do."""
        self._roles, self._price = split
        self._replicas = replicas
        self._go_on = go_on
        self._wake = wake
        self._sides = [_Side() for _ in replicas]
        self._sources: dict[RequestId, int] = {}  # replicas with a piece of these requests
        self._due: list[_Due] = []

    @property
    def next_at(self) -> float:
        return self._due[0].at if self._due else NEVER

    def act(self, now: float) -> None:
        """What is due."""
        due = heapq.heappop(self._due)
        _, request, index, kind, num_tokens = due
        replica, side = self._replicas[index], self._sides[index]
        assert replica is not None
        if kind is _Kind.COPIED:
            side.is_copying = False
            self._push(now, request, index, _Kind.LET_GO, num_tokens)
            self._copy(index, side, now)
        elif kind is _Kind.FETCHED:
            self._drop_piece(request)
            before = replica.wake_at
            replica.arrive(request, num_tokens > 0, now)
            if replica.wake_at != before:
                self._wake(index, replica)
        elif now < replica.wake_at < NEVER:  # it looks between two steps
            heapq.heappush(self._due, due._replace(at=replica.wake_at))
        else:
            self._let_go(index, replica, request, num_tokens, now)

    def step_ended(self, index: int, replica: Replica, among: int, now: float) -> None:
        """Has requests that have made a token leave a prefill replica, if a decode replica is among those open."""
        if not self._roles.is_prefill(index):
            return
        side, live = self._sides[index], replica.engine.scheduler.live
        hands_over = not self._roles.takers(among, has_made=True) >> index & 1
        for event in replica.observer.take_told():
            if isinstance(event, Exported):
                if event.blocks:
                    side.to_copy.append(event)
                elif event.request in side.asked:
                    self._let_go(index, replica, event.request, 0, now)
            elif event.request not in live:
                side.asked.pop(event.request, None)
            elif isinstance(event, Token) and hands_over:
                side.asked.setdefault(event.request, False)
        self._copy(index, side, now)
        self._ask(side, replica)

    def sent(self, index: int, replica: Replica, request: Request) -> None:
        """A request was sent to a replica with a piece to fetch; without room there it is computed."""
        scheduler, fetches = replica.engine.scheduler, self._sides[index].fetches
        if not scheduler.incoming(request.id):
            self._drop_piece(request.id)
            return
        now = replica.clock.now()  # the end of a step that has begun
        start = max(now, fetches[0])
        if start > now + fetch_limit_s(scheduler.prompt_token_s * request.num_moved):
            self._push(start, request.id, index, _Kind.FETCHED, 0)
            return
        end = start + self._price.fetch_s(request.num_moved)
        heapq.heapreplace(fetches, end)
        self._push(end, request.id, index, _Kind.FETCHED, request.num_moved)

    def forget(self, index: int) -> None:
        """All requests of a replica go on elsewhere from their tokens."""
        self._sides[index] = _Side()
        self._due = [due for due in self._due if due.replica != index]
        heapq.heapify(self._due)

    def _let_go(self, index: int, replica: Replica, request: RequestId, num_tokens: int, now: float) -> None:
        side = self._sides[index]
        side.asked.pop(request, None)
        left = replica.let_go(request, num_tokens, now)
        self._ask(side, replica)
        if left is not None:
            self._go_on(index, left, now)

    def _ask(self, side: _Side, replica: Replica) -> None:
        for request in list(with_room_to_leave(replica.engine.scheduler, side.asked)):
            if not side.asked[request]:
                side.asked[request] = True
                replica.engine.leave(request)

    def _copy(self, index: int, side: _Side, now: float) -> None:
        """Begins the next copy; what finds no room for its piece is let go without."""
        replica = self._replicas[index]
        assert replica is not None
        num_blocks = replica.engine.scheduler.tables.host.num_blocks
        while side.to_copy and not side.is_copying:
            request, _, num_tokens, blocks = side.to_copy.popleft()
            side.pieces = {each: kept for each, kept in side.pieces.items() if kept[0] >= now}
            if sum(count for _, count in side.pieces.values()) + len(blocks) > num_blocks:
                self._push(now, request, index, _Kind.LET_GO, 0)
                continue
            side.is_copying = True
            side.pieces[request] = now + KEPT_S, len(blocks)
            self._sources[request] = index
            self._push(now + self._price.copy_s(num_tokens), request, index, _Kind.COPIED, num_tokens)

    def _drop_piece(self, request: RequestId) -> None:
        self._sides[self._sources.pop(request)].pieces.pop(request, None)

    def _push(self, at: float, request: RequestId, index: int, kind: _Kind, num_tokens: int) -> None:
        heapq.heappush(self._due, _Due(at, request, index, kind, num_tokens))
