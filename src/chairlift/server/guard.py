"""What a connection may not do: be one too many, send a head without end, dawdle with a request, or stop reading.

Always: whoever is refused hears why, as far as HTTP allows it then, and is gone a second later. A client that reads
nothing of what waits for it, for as long as the settings allow, is cut off; one that reads slowly is not.
"""

import time
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from chairlift.server.errors import error_json
from chairlift.server.load import Load

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 128
_LINGER_S = 1.0  # for the client to read why; closing at once may take the answer away from it


class GuardedProtocol(HttpToolsProtocol):
    def __init__(self, load: Load, **given: Any) -> None:
        super().__init__(**given)
        self._load = load
        self._cycles: list[RequestResponseCycle] = []  # requests under way; more than one if some did not wait
        self._is_counted = False
        self._is_refused = False
        self._is_in_head = False
        self._num_head_bytes = 0
        self._receiving_since: float | None = None
        self._unread: tuple[int, float] | None = None  # bytes that the client has yet to read, and since when

    @property
    def is_full(self) -> bool:
        return self.flow.write_paused

    def count(self) -> bool:
        """As one more connection, also before there is one to speak of; False if it would be too many."""
        self._is_counted = self._is_counted or self._load.connect()
        return self._is_counted

    def discount(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._load.disconnect()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._receiving_since = time.monotonic()
        if not self.count():
            self._refuse(503, f"there are {self._load.settings.max_connections} connections already")

    def connection_lost(self, exc: Exception | None) -> None:
        self.discount()
        super().connection_lost(exc)
        self.drop()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        if self._is_in_head:
            self._num_head_bytes += len(data)
            self._check_head(self._num_head_bytes)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._num_head_bytes = True, 0
        self._receiving_since = time.monotonic()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._check_head(len(self.url) + sum(len(name) + len(value) for name, value in self.headers))
        if not self._is_refused:
            super().on_headers_complete()
            self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete and cycle is not self.cycle]
            self._cycles += [self.cycle] if self.cycle is not None else []

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._receiving_since = None
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not HTTP")

    def drop(self) -> None:
        """Whatever is under way has nobody to answer any more; to be called before the transport knows."""
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def look(self, now: float) -> None:
        """To be called every now and then."""
        settings = self._load.settings
        if self.flow.read_paused and self._receiving_since is not None:  # it is we who do not go on
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
        retry = "Retry-After: 1\r\n" if status == 503 else ""
        self.transport.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n".encode()
            + body
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.abort)
