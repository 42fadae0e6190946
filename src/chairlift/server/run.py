"""Serving the application on a socket that is already bound, until a signal says stop.

Always: after the first SIGTERM or SIGINT, or once `stop` is set, no new connection is taken and requests under way
finish, however long they take; a second SIGINT ends at once. Whoever cannot wait ends the engine, and with it them.
"""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from chairlift.server.wire import WireProtocol

_KEEP_ALIVE_S = 65  # longer than the idle time after which common clients and proxies close a connection


class _Server(uvicorn.Server):
    """Signals are set up by `serve`: a stop is an ordinary end here, not the death of the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: ASGIApp, sock: socket.socket, *, stop: asyncio.Event | None = None) -> None:
    """Runs in the calling event loop; returns after a graceful stop."""
    config = uvicorn.Config(
        app,
        http=WireProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    for number in signals:
        loop.add_signal_handler(number, server.handle_exit, number, None)
    watch = asyncio.create_task(_exit_on(stop, server)) if stop is not None else None
    try:
        await server.serve(sockets=[sock])
    finally:
        if watch is not None:
            watch.cancel()
        for number in signals:
            loop.remove_signal_handler(number)


async def _exit_on(stop: asyncio.Event, server: uvicorn.Server) -> None:
    await stop.wait()
    server.should_exit = True
