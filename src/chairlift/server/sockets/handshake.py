"""TLS handshakes: connections until both sides have agreed on keys, by a certificate that may be renewed meanwhile.

Always: a connection counts once it is accepted, and has `max_receive_seconds` for the handshake. One too many is closed
without a response, which would take a handshake.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from chairlift.server.admission.bounds import Load
from chairlift.server.admission.rejected import TooManyConnections
from chairlift.server.sockets.guard import GuardedProtocol
from chairlift.server.sockets.listen import network_of

_log = logging.getLogger(__name__)
_LOOK_S = 10.0  # between two looks at the files of a certificate
_PAUSE_S = 1.0  # for connections to end, when file descriptors have run out


def server_context(cert: Path, key: Path | None) -> ssl.SSLContext:
    """Raises `OSError` for unusable files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


class RenewedContext:
    """The context for handshakes, made again when one of its files is another one; a pair that does not fit yet leaves
    the old one in use."""

    def __init__(self, cert: Path, key: Path | None) -> None:
        self._paths = (cert, key)
        self._stamps = self._look()
        self._failed: list[tuple[int, int]] = []  # files that were refused, which is told once
        self._context = server_context(cert, key)
        self._look_at = time.monotonic() + _LOOK_S

    def get(self) -> ssl.SSLContext:
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            self._renew()
        return self._context

    def _renew(self) -> None:
        stamps = self._look()
        if stamps == self._stamps:
            return
        try:
            self._context = server_context(*self._paths)
        except OSError as error:
            if stamps != self._failed:
                _log.warning("the certificate stays as it is: %s: %s", self._paths[0], error)
            self._failed = stamps
        else:
            self._stamps = stamps
            _log.info("read %s again: it is another certificate now", self._paths[0])

    def _look(self) -> list[tuple[int, int]]:
        """What tells whether the files are the same ones."""
        found = []
        for path in self._paths:
            with contextlib.suppress(OSError):
                stat = (path or self._paths[0]).stat()
                found.append((stat.st_mtime_ns, stat.st_ino))
        return found


class TlsListener:
    """Accepts connections from a socket one at a time: other front ends accept from it too."""

    def __init__(
        self, listener: socket.socket, context: RenewedContext, load: Load, protocol: Callable[[], GuardedProtocol]
    ) -> None:
        self._listener = listener
        self._context = context
        self._load = load
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._open()

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        for handshake in list(self._handshakes):
            handshake.cancel()

    def _open(self) -> None:
        self._loop.add_reader(self._listener, self._take)

    def _take(self) -> None:
        try:
            connection, peer = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):  # another took it, or it is gone
            return
        except OSError:
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(_PAUSE_S, self._open)
            return
        protocol = self._protocol()
        try:
            protocol.count(network_of(peer))
        except TooManyConnections as error:
            self._load.on_refused(str(error.status))
            connection.close()
            return
        handshake = asyncio.ensure_future(self._agree(connection, protocol))
        self._handshakes[handshake] = None
        handshake.add_done_callback(self._handshakes.pop)

    async def _agree(self, connection: socket.socket, protocol: GuardedProtocol) -> None:
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            timeout_s = self._load.settings.max_receive_seconds
            await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._context.get(), ssl_handshake_timeout=timeout_s
            )
        except BaseException as error:
            protocol.discount()
            if not isinstance(error, OSError):  # it left, spoke no TLS, or took too long
                raise
            self._load.on_refused("handshake")
