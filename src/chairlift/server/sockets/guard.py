"""Limits on a connection: their number, the size of heads and trailers, pipelined requests, and the time to send a
request or to read a response.

Always: trailers are never read as headers. A refused client is told why, where HTTP still allows it, and cut off a
second later. A client that reads nothing for `slow_reader_seconds` is cut off; one that reads slowly is not.
"""

import re
import time
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from chairlift.server.admission.bounds import Load
from chairlift.server.admission.rejected import TooManyConnections
from chairlift.server.errors import error_json
from chairlift.server.sockets.listen import network_of

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 128
MAX_PIPELINED = 32  # requests on one connection that have no answer yet
_LINGER_S = 1.0  # for the client to read why; closing at once may discard the response


class Refused(Exception):
    """Ends the parsing of the rest of a read."""


class GuardedProtocol(HttpToolsProtocol):
    def __init__(self, load: Load, **given: Any) -> None:
        super().__init__(**given)
        self._load = load
        self._cycles: list[RequestResponseCycle] = []  # requests in flight; several when pipelined
        self._network: str | None = None  # while it is counted
        self._is_refused = False
        self._is_in_head = False
        self._is_body_read = False  # any of a body, in this read
        self._num_head_bytes = 0  # of reads that all belong to the head
        self._num_trailer_bytes = 0  # of reads without a byte of a body
        self._num_trailers = 0
        self._receiving_since: float | None = None
        self._unread: tuple[int, float] | None = None  # bytes in the buffer, and since when

    @property
    def is_full(self) -> bool:
        return self.flow.write_paused

    def count(self, network: str) -> None:
        """Counts it as a connection, once; raises `TooManyConnections`."""
        if self._network is None:
            self._load.connect(network)
            self._network = network

    def discount(self) -> None:
        if self._network is not None:
            self._load.disconnect(self._network)
            self._network = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._receiving_since = time.monotonic()
        try:
            self.count(network_of(transport.get_extra_info("peername")))
        except TooManyConnections as error:
            self._refuse(error.status, str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.discount()
        super().connection_lost(exc)
        self.drop()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        was_in_head, self._is_body_read = self._is_in_head, False
        self._feed(data)
        if self._is_in_head and was_in_head:
            self._num_head_bytes += len(data)
            self._check_head(self._num_head_bytes)
        elif not self._is_in_head and self._receiving_since is not None:
            self._num_trailer_bytes = 0 if self._is_body_read else self._num_trailer_bytes + len(data)
            if self._num_trailer_bytes > MAX_HEAD_BYTES:
                self._refuse(431, f"the request has {MAX_HEAD_BYTES} bytes and more beside its body")
        is_idle = all(cycle.response_complete for cycle in self._cycles)
        if self._receiving_since is None and not self._is_refused and is_idle:
            # Blank lines: the next request has begun.
            self._receiving_since = time.monotonic()

    def _feed(self, data: bytes) -> None:
        """Ignores a request to upgrade the protocol (RFC 9110, 7.8)."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            head = [self.parser.get_method(), b" ", self.url, b" HTTP/1.1\r\n"]
            for name, value in self.headers:
                if name == b"connection":
                    value = re.sub(rb"(?i)\bupgrade\b", b"", value)
                head += [name, b": ", value, b"\r\n"] if name != b"upgrade" else []
            if self._is_in_head:
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
                self._feed(b"".join([*head, b"\r\n", data[upgrade.args[0] :]]))
        except httptools.HttpParserError:
            self._refuse(400, "this is not HTTP")

    @property
    def _is_other_protocol(self) -> bool:
        """The head asks for an upgrade and is read again without it; CONNECT is a request like others."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def on_message_begin(self) -> None:
        if self._is_refused:
            raise Refused
        super().on_message_begin()
        self._is_in_head, self._num_head_bytes, self._num_trailer_bytes, self._num_trailers = True, 0, 0, 0
        self._receiving_since = time.monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:
            super().on_header(name, value)
            return
        self._num_trailers += 1
        if self._num_trailers > MAX_HEADERS:
            self._refuse(431, f"the request has more than {MAX_HEADERS} trailers")
            raise Refused

    def on_headers_complete(self) -> None:
        if self._is_other_protocol:
            return
        self._is_in_head = False
        self._check_head(len(self.url) + sum(len(name) + len(value) for name, value in self.headers))
        if not self._is_refused:
            self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
            if len(self._cycles) == MAX_PIPELINED:
                self._refuse(400, f"there are {MAX_PIPELINED} requests on this connection without an answer yet")
                raise Refused
            super().on_headers_complete()
            self._cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._is_body_read = True
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_other_protocol:
            return
        self._receiving_since = None
        if not self._is_refused:
            super().on_message_complete()
            # After a trailer `Connection: close` the parser reads no further request.
            if not self.parser.should_keep_alive():
                self.cycle.keep_alive = False
                if self.cycle.response_complete:
                    self.transport.close()

    def drop(self) -> None:
        """Ends requests in flight, as their client is gone; called before the transport is closed."""
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def check_limits(self, now: float) -> None:
        """Called periodically."""
        settings = self._load.settings
        if self.flow.read_paused and self._receiving_since is not None:  # the server itself has paused reading
            self._receiving_since = now
        if self._receiving_since is not None and now - self._receiving_since > settings.max_receive_seconds:
            self._refuse(408, f"the request did not arrive within {settings.max_receive_seconds:g} s")
        size = self.transport.get_write_buffer_size() if self.is_full or self.transport.is_closing() else 0
        if not size:
            self._unread = None
        elif self._unread is None or size < self._unread[0]:
            self._unread = size, now
        elif now - self._unread[1] > settings.slow_reader_seconds:
            self._load.on_refused("slow_reader")
            self.drop()
            self.transport.abort()

    def _check_head(self, num_bytes: int) -> None:
        if num_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"the head of the request is larger than {MAX_HEAD_BYTES} bytes")
        elif len(self.headers) > MAX_HEADERS:
            self._refuse(431, f"the request has more than {MAX_HEADERS} headers")

    def _refuse(self, status: int, message: str) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._receiving_since = None
        self._load.on_refused(str(status))
        has_begun = any(cycle.response_started and not cycle.response_complete for cycle in self._cycles)
        self.drop()
        if has_begun:
            self.transport.abort()
            return
        body = error_json(status, message)
        retry = "Retry-After: 1\r\n" if status in (429, 503) else ""
        self.transport.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n".encode()
            + body
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.abort)
