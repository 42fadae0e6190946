"""Moves of an engine's requests: those that leave with their keys and values, and those that arrive with them.

Always: every request that was asked to leave is answered once, with a ticket or without, and stays until then. Every
request that expects a piece is told whether it came. Bytes are copied by a thread and fetched by some, so that a slow
source holds up no other, and the engine goes on meanwhile; `turn` is called between steps. Knows nothing of sockets and
front ends but their names.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from chairlift.core.engine import Engine
from chairlift.core.events import Exported
from chairlift.core.ids import BlockId, RequestId
from chairlift.core.moving import NUM_FETCHES, MovePrice, fetch_limit_s, with_room_to_leave
from chairlift.core.ports import HostMemory
from chairlift.core.request import Request
from chairlift.live.moving.fetch import Fetcher
from chairlift.live.moving.shelf import Piece, Shelf
from chairlift.live.moving.sockets import STALL_S
from chairlift.live.moving.ticket import Ticket, hash_tokens

_TELL_S = 10.0  # between two lines about pieces that did not come
_log = logging.getLogger(__name__)

FrontEnd = bytes
T = TypeVar("T")


@dataclass(slots=True)
class _Leaving:
    front_end: FrontEnd
    key: int
    has_begun: bool = False  # the scheduler was asked
    num_tokens: int = 0
    copy: "Future[Piece] | None" = None


class Answer(NamedTuple):
    """The request can be ended here; it goes on elsewhere, without a ticket from its tokens alone."""

    front_end: FrontEnd
    key: int
    ticket: Ticket | None


class Moves:
    def __init__(
        self,
        engine: Engine,
        host: HostMemory,
        shelf: Shelf,
        model: str,
        fetcher: Fetcher | None = None,
        address: str | None = None,
    ) -> None:
        """`model`: what keys and values depend on beside the memory's layout. `fetcher`: without one, pieces are found
        on the shelf, which engines of a machine share. `address`: a socket that sends pieces to other machines."""
        self.layout = blake2b(f"{host.layout}\n{model}".encode(), digest_size=16).hexdigest()
        self._engine = engine
        self._host = host
        self._shelf = shelf
        self._fetcher = fetcher or Fetcher(shelf.folder)
        self._address = address
        self._price = MovePrice(host.block_bytes, engine.scheduler.limits.pages)
        self._leaving: dict[RequestId, _Leaving] = {}
        self._arriving: dict[RequestId, Future[None]] = {}
        self._num_failed, self._told = 0, -_TELL_S
        self._copies = ThreadPoolExecutor(1, "moves")
        self._fetches = ThreadPoolExecutor(NUM_FETCHES, "fetches")
        self.woken, self._waker = os.pipe()  # readable when a thread has done something
        os.set_blocking(self.woken, False)
        os.set_blocking(self._waker, False)

    def leave(self, front_end: FrontEnd, key: int, request: RequestId) -> None:
        """Asks a request to leave, when the host has room for it."""
        self._leaving.setdefault(request, _Leaving(front_end, key))  # one that was asked before is under way
        self._begin()

    def accepts(self, ticket: Ticket, tokens: Sequence[int]) -> bool:
        """Whether a ticket belongs to these known tokens, and its piece can be read here; a line says if not."""
        pages, num_tokens = self._engine.scheduler.limits.pages, ticket.num_tokens
        if ticket.layout != self.layout:
            self._tell("they are of another model, layout or fingerprint")
        elif not 0 < num_tokens < len(tokens) or ticket.tokens != hash_tokens(tokens[:num_tokens]):
            self._tell("they are of other tokens")
        elif ticket.num_bytes != pages.num_saved(num_tokens) * self._host.block_bytes:
            self._tell("they have another size")
        else:
            return True
        return False

    def arrive(self, request: Request, ticket: Ticket) -> None:
        """A request was added that a piece follows."""
        blocks = self._engine.scheduler.incoming(request.id)
        if blocks:
            computing_s = self._engine.scheduler.prompt_token_s * ticket.num_tokens
            deadline = time.monotonic() + fetch_limit_s(computing_s)
            self._arriving[request.id] = self._do(self._fetches, partial(self._fetch, ticket, blocks, deadline))
        else:
            self._fetcher.discard(ticket)
            self._tell("--host-memory is full")

    def turn(self, exported: Sequence[Exported]) -> list[Answer]:
        """Takes in what has happened since the last turn; answers to those that asked."""
        self._hear()
        self._shelf.sweep()
        answers: list[Answer] = []
        for event in exported:
            leaving = self._leaving.get(event.request)
            if leaving is not None and event.blocks:
                leaving.num_tokens = event.num_tokens
                leaving.copy = self._do(self._copies, partial(self._copy, event.blocks))
            elif leaving is not None:
                answers.append(self._answer(event.request, None))
        for request, leaving in list(self._leaving.items()):
            if request not in self._engine.scheduler.live:
                if leaving.copy is None or leaving.copy.done():
                    self._discard(leaving)
                    answers.append(self._answer(request, None))
            elif leaving.copy is not None and leaving.copy.done():
                answers.append(self._answer(request, self._ticket(request, leaving)))
        for request, fetched in list(self._arriving.items()):
            if fetched.done():
                del self._arriving[request]
                fault = fetched.exception()
                self._engine.arrive(request, is_whole=fault is None)
                if fault is not None:
                    self._tell(str(fault))
        self._begin()
        return answers

    def _begin(self) -> None:
        """Lets requests leave as far as the host has room; the others go on until it has."""
        for request in with_room_to_leave(self._engine.scheduler, self._leaving):
            leaving = self._leaving[request]
            if not leaving.has_begun:
                leaving.has_begun = True
                self._engine.leave(request)

    def is_cheaper(self, request: RequestId) -> bool:
        """To move a request than to compute it again."""
        progress = self._engine.scheduler.live.get(request)
        return progress is not None and self._price.is_cheaper(
            progress.num_computed, self._engine.scheduler.prompt_token_s
        )

    def _answer(self, request: RequestId, ticket: Ticket | None) -> Answer:
        leaving = self._leaving.pop(request)
        return Answer(leaving.front_end, leaving.key, ticket)

    def _ticket(self, request: RequestId, leaving: _Leaving) -> Ticket | None:
        assert leaving.copy is not None
        if leaving.copy.exception() is not None:
            return None
        piece, tokens = leaving.copy.result(), self._engine.scheduler.live[request].tokens
        return Ticket(
            piece.path.name, self.layout, leaving.num_tokens, hash_tokens(tokens[: leaving.num_tokens]),
            piece.num_bytes, piece.checksum, self._address,
        )  # fmt: skip

    def _discard(self, leaving: _Leaving) -> None:
        if leaving.copy is not None and leaving.copy.exception() is None:
            self._shelf.drop(leaving.copy.result().path)

    def _copy(self, blocks: Sequence[BlockId]) -> Piece:
        began, num_bytes = time.monotonic(), len(blocks) * self._host.block_bytes
        piece = self._shelf.put(num_bytes, partial(self._host.read, blocks))
        self._price.copied.learn(num_bytes, time.monotonic() - began)
        return piece

    def _tell(self, why: str) -> None:
        """A piece that did not come, or is not wanted: in a line now and then, for there may be many."""
        self._num_failed += 1
        if time.monotonic() - self._told >= _TELL_S:
            self._told = time.monotonic()
            _log.warning(
                "keys and values of a request did not come along (%s); they are computed again (%d so far)",
                why, self._num_failed,
            )  # fmt: skip

    def _do(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> "Future[T]":
        future = threads.submit(work)
        future.add_done_callback(lambda _: self._wake())
        return future

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it is full, so the engine will wake
            os.write(self._waker, b" ")

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.woken, 4096)

    def _fetch(self, ticket: Ticket, blocks: Sequence[BlockId], deadline: float) -> None:
        began, is_whole = time.monotonic(), False
        try:
            self._fetcher.fetch(ticket, deadline, partial(self._host.write, blocks))
            is_whole = True
        finally:
            took_s = time.monotonic() - began
            if is_whole or took_s >= STALL_S:  # what failed at once says nothing of the rate
                self._price.fetched.learn(ticket.num_bytes, took_s)
