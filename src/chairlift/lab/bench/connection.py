"""Connections to the server, each with one request at a time, kept alive where the server allows it.

Always: a line's timestamp is the moment the kernel delivered its bytes; lines of one read share it. Knows HTTP, not
what the lines mean.
"""

import asyncio
import errno
import json
import ssl
from collections.abc import Callable
from time import monotonic
from typing import cast

import httptools

from chairlift.lab.bench.answer import ReadLine, StreamedAnswer, message_of
from chairlift.lab.bench.record import Unreachable
from chairlift.lab.bench.target import Address

NO_ANSWER = "the connection was closed without an answer"
_LOCAL_LIMITS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)
MAX_ERROR_BODY = 4096  # bytes of an error's body that are kept


class _Connection(asyncio.Protocol):
    def __init__(self, release: Callable[["_Connection"], None]) -> None:
        self._release = release
        self.is_open = True
        self._done: asyncio.Future[None] | None = None  # of the request in flight

    async def ask(self, request: bytes, answer: StreamedAnswer, read: ReadLine) -> None:
        """Returns when the answer is over; what arrived is in `answer`."""
        if not self.is_open:
            answer.error = NO_ANSWER
            return
        self._parser = httptools.HttpResponseParser(self)
        self._answer, self._read = answer, read
        self._rest = b""
        self._error_body: bytes | None = None  # the body of an error response
        self._has_head = self._has_length = False
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._done

    def close(self) -> None:
        self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._done is None:
            return self.close()  # no request is in flight
        self._now = monotonic()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._done is not None:  # else it came after the answer, which stays valid
                self._answer.error = f"not HTTP: {error}"
                self._end()
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._done is not None:
            if not self._has_head:
                self._answer.error = NO_ANSWER
            elif self._error_body is not None:
                self._read_error()
            elif self._has_length and not self._answer.has_ended:
                self._answer.error = self._answer.error or "the connection was closed in the middle of the answer"
                self._rest = b""  # half a line
            self._end()

    # Called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._has_length |= name.lower() in (b"transfer-encoding", b"content-length")

    def on_headers_complete(self) -> None:
        self._has_head = True
        if self._parser.get_status_code() != 200:
            self._error_body = b""

    def on_body(self, body: bytes) -> None:
        if self._error_body is not None:
            self._error_body = (self._error_body + body)[:MAX_ERROR_BODY]
            return
        lines = body.split(b"\n")
        if self._rest:
            lines[0] = self._rest + lines[0]
        self._rest = lines.pop()
        answer, read, now = self._answer, self._read, self._now
        for line in lines:
            if line:
                read(answer, line, now)

    def on_message_complete(self) -> None:
        if self._error_body is not None:
            self._read_error()
        keeps = self._parser.should_keep_alive()
        self._end()
        if keeps:
            self._release(self)
        else:
            self.close()

    def _read_error(self) -> None:
        text = (self._error_body or b"").decode(errors="replace")
        try:
            said = message_of(json.loads(text))
        except (ValueError, RecursionError):
            said = message_of(text)
        self._answer.error = f"HTTP {self._parser.get_status_code()}" + (f": {said}" if said else "")

    def _end(self) -> None:
        if self._rest:
            self._read(self._answer, self._rest, self._now)
        done, self._done = self._done, None
        if done is not None and not done.done():  # it is done where the request was cancelled
            done.set_result(None)


class Connections:
    """The connections of one client process; the one used last is reused first."""

    def __init__(self, address: Address, peer: str, read: ReadLine) -> None:
        """`peer` is the host's IP address."""
        self._address = address
        self._peer = peer
        self._read = read
        self._idle: list[_Connection] = []
        self._tls = ssl.create_default_context() if address.is_tls else None

    async def ask(self, request: bytes, answer: StreamedAnswer) -> None:
        """Raises Unreachable; any other failure is in the answer."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_open:
                continue
            await self._exchange(connection, request, answer)
            if answer.error != NO_ANSWER:
                return
            answer.error = ""  # the server closed it while it was idle: the request is sent again
        try:
            connection = await self._connect()
        except OSError as error:
            if error.errno in _LOCAL_LIMITS:
                answer.error = f"this machine cannot have more connections: {reason_of(error)}"
                return
            raise Unreachable(f"cannot connect to {self._address}: {reason_of(error)}") from error
        await self._exchange(connection, request, answer)

    async def _connect(self) -> _Connection:
        name = self._address.host if self._tls else None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._idle.append), self._peer, self._address.port, ssl=self._tls, server_hostname=name
        )
        return connection

    async def _exchange(self, connection: _Connection, request: bytes, answer: StreamedAnswer) -> None:
        try:
            await connection.ask(request, answer, self._read)
        except asyncio.CancelledError:
            connection.close()
            raise

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
