"""Serves applications on bound sockets until a signal says stop.

Always: after the first signal (`STOP`), or once `stop` is set, requests in flight finish and new ones are refused on
open sockets. Requests left after `drain_timeout`, or at a second signal, end with an error to their client.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from chairlift.live.processes.child import STOP
from chairlift.server.admission.bounds import Load
from chairlift.server.sockets.connection import ConnectionProtocol
from chairlift.server.sockets.guard import GuardedProtocol
from chairlift.server.sockets.handshake import RenewedContext, TlsListener

_KEEP_ALIVE_S = 65  # longer than the idle time after which common clients and proxies close a connection
_GOODBYE_S = 1.0  # for clients to be told that their request has ended
_CLOSE_S = 0.3  # by then connections without a request are closed; those left are live pages
Site = tuple[ASGIApp, socket.socket]


class _Server(uvicorn.Server):
    """Leaves signals to `serve`; with TLS, connections come from a `TlsListener`."""

    def __init__(self, config: uvicorn.Config, load: Load) -> None:
        super().__init__(config)
        self._load = load
        self._tls: list[TlsListener] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        settings = self._load.settings
        if settings.tls_cert is None:
            await super().startup(sockets)
            return
        await super().startup([])
        context = RenewedContext(settings.tls_cert, settings.tls_key)
        protocol = partial(
            ConnectionProtocol,
            self._load,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        self._tls = [TlsListener(sock, context, self._load, protocol) for sock in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self._tls:
            listener.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Shutdown:
    """Asked once, drains; asked again, ends at once."""

    def __init__(self, servers: list[_Server], load: Load) -> None:
        self._servers = servers
        self._load = load
        self._is_asked = asyncio.Event()
        self._is_urgent = asyncio.Event()

    def ask(self) -> None:
        if self._is_asked.is_set():
            self._is_urgent.set()
        self._load.drain()
        self._is_asked.set()

    async def run(self) -> None:
        await self._is_asked.wait()
        finish, hurry = asyncio.ensure_future(self._finish()), asyncio.ensure_future(self._is_urgent.wait())
        timeout_s = self._load.settings.drain_timeout
        await asyncio.wait((finish, hurry), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not finish.done():
            self._load.end_all()
            await asyncio.wait((finish,), timeout=_GOODBYE_S)
        for server in self._servers:
            server.should_exit = True
        await asyncio.sleep(_CLOSE_S)
        for connection in _connections(self._servers):
            connection.transport.abort()

    async def _finish(self) -> None:
        """Returns when every request has ended and all responses are sent."""
        await self._load.is_idle.wait()
        while any(connection.transport.get_write_buffer_size() for connection in _connections(self._servers)):
            await asyncio.sleep(0.02)


async def serve(sites: Sequence[Site], load: Load, *, stop: asyncio.Event | None = None) -> None:
    """Runs in the calling event loop; returns after a graceful stop."""
    servers = [_server(app, load) for app, _ in sites]
    ending = _Shutdown(servers, load)
    loop = asyncio.get_running_loop()
    has_signals = threading.current_thread() is threading.main_thread()
    if has_signals:
        loop.add_signal_handler(STOP, ending.ask)
    tasks = [asyncio.ensure_future(ending.run()), asyncio.ensure_future(_check_connections(servers, load))]
    if stop is not None:
        tasks.append(asyncio.ensure_future(_ask_on(stop, ending)))
    try:
        await asyncio.gather(*(server.serve(sockets=[sock]) for server, (_, sock) in zip(servers, sites, strict=True)))
    finally:
        for task in tasks:
            task.cancel()
        if has_signals:
            loop.remove_signal_handler(STOP)


def _server(app: ASGIApp, load: Load) -> _Server:
    config = uvicorn.Config(
        app,
        http=partial(ConnectionProtocol, load),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    return _Server(config, load)


async def _check_connections(servers: Sequence[_Server], load: Load) -> None:
    while True:
        settings = load.settings
        await asyncio.sleep(min(1.0, settings.max_receive_seconds / 4, settings.slow_reader_seconds / 4))
        load.note_tokens()
        now = time.monotonic()
        for connection in _connections(servers):
            connection.check_limits(now)


def _connections(servers: Sequence[_Server]) -> list[GuardedProtocol]:
    return cast(list[GuardedProtocol], [each for server in servers for each in server.server_state.connections])


async def _ask_on(stop: asyncio.Event, ending: _Shutdown) -> None:
    await stop.wait()
    ending.ask()
