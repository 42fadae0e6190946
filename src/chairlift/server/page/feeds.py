"""The feeds of pages open in this front end, each a stream of server-sent events.

Always: the engine is watched only while a feed is open. A feed sends the whole state before any news; one that is read
too slowly pauses and then sends the whole state again.

    event: about    the server and its settings        event: news   what the last second has brought
    event: whole    everything the engine shows        event: away   there is no engine just now
    event: totals   how requests ended, since the server began; before `whole` and `news`
    event: replicas each of them, where there are several; before `whole` and `news`, after `away`
"""

import asyncio
from collections.abc import Callable

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chairlift.live.wire.messages import Snapshot
from chairlift.live.wire.watch_client import WatchClient
from chairlift.server.sockets.connection import Connection, connection_of

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Feeds:
    def __init__(
        self, watching: WatchClient, totals: Callable[[], bytes], replicas: Callable[[], bytes | None]
    ) -> None:
        """Both are JSON; `replicas`: their loads, None where there is one."""
        self._watching = watching
        self._totals = totals
        self._replicas = replicas
        self._open: dict[Feed, None] = {}
        self._is_closed = False

    def join(self, feed: "Feed") -> None:
        self._open[feed] = None
        if self._is_closed:
            feed.end()
        else:
            self.ask()

    def leave(self, feed: "Feed") -> None:
        del self._open[feed]
        if not self._open:
            self._watching.end()

    def close(self) -> None:
        """Ends all feeds, also those that join later."""
        self._is_closed = True
        for feed in list(self._open):
            feed.end()

    def ask(self) -> None:
        """Requests the whole state."""
        self._watching.begin(self)

    def put(self, snapshot: Snapshot) -> None:
        data = (
            _event(b"totals", self._totals())
            + self._loads()
            + _event(b"whole" if snapshot.is_whole else b"news", snapshot.data)
        )
        for feed in list(self._open):
            feed.show(data, snapshot.is_whole)

    def lose(self) -> None:
        for feed in list(self._open):
            feed.lose(self._loads())

    def _loads(self) -> bytes:
        loads = self._replicas()
        return b"" if loads is None else _event(b"replicas", loads)


class Feed(Response):
    def __init__(self, feeds: Feeds, about: Callable[[], bytes]) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = [*_HEADERS]
        self._feeds = feeds
        self._about = about
        self._connection: Connection
        self._over: asyncio.Future[None]
        self._wants_whole = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._connection = connection_of(scope)
        if self._connection.is_gone:
            raise ClientDisconnect
        self._over = asyncio.get_running_loop().create_future()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._run()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._connection.sender = None

    async def _run(self) -> None:
        if self._connection.is_gone:  # since the start was sent
            raise ClientDisconnect
        self._connection.sender = self
        self._connection.write(_event(b"about", self._about()))
        self._feeds.join(self)
        try:
            await self._over
        finally:
            self._feeds.leave(self)

    def show(self, data: bytes, is_whole: bool) -> None:
        if self._wants_whole != is_whole or self._over.done():
            return
        if self._connection.is_full:
            self._wants_whole = True
        else:
            self._wants_whole = False
            self._connection.write((_event(b"about", self._about()) if is_whole else b"") + data)

    def lose(self, loads: bytes) -> None:
        self._wants_whole = True
        if not self._over.done() and not self._connection.is_full:
            self._connection.write(_event(b"away", b"{}") + loads)

    def hold(self) -> None:
        """`show` checks the buffer."""

    def release(self) -> None:
        if self._wants_whole:
            self._feeds.ask()

    def leave(self) -> None:
        if not self._over.done():
            self._over.set_exception(ClientDisconnect())

    def end(self) -> None:
        if self._over.done():
            return
        if self._connection.has_unsent:  # it does not read, and would not see the end
            self._connection.cut()
        else:
            self._over.set_result(None)


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, data)
