"""A streamed response: every delta is turned into bytes and written where it arrives.

Always: nothing is sent before the first bytes exist, so a request that fails earlier still gets a proper status; when
the client leaves, its request is freed at once. Deltas that do not fit the connection's buffer are kept as they came.
Of a chunk in pieces no more is made than the client reads, and others run between the pieces.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chairlift.server.admission.cost import PIECE_S
from chairlift.server.answer import Answer, Delta, start_all
from chairlift.server.sockets.connection import Connection, connection_of

_LARGE = 65_536  # bytes, which do not wait for others: the client may be full
Header = tuple[bytes, bytes]


class DeltaEncoder(Protocol):
    """The bytes of a streamed response."""

    def add(self, index: int, delta: Delta) -> bytes | Iterator[bytes]:
        """An iterator: the pieces of a large one."""
        ...

    def end(self) -> bytes: ...

    def fail(self, error: Exception, has_begun: bool) -> bytes:
        """The last bytes of a failed response; raises an error that has a status of its own."""
        ...


class ByteStream(Response):
    """Always closes `answers`. They are held until the response has begun, and while the client reads too slowly."""

    def __init__(self, answers: Sequence[Answer], encoder: DeltaEncoder, *, headers: list[Header]) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = headers
        self._answers = answers
        self._encoder = encoder
        self._num_open = self._num_samples = sum(answer.params.num_samples for answer in answers)
        self._connection: Connection
        self._parts: list[bytes] = []  # not written yet
        self._num_bytes = 0  # of them
        self._pieces: Iterator[bytes] | None = None  # to be made before anything else is written
        self._write = self._keep
        self._error: Exception | None = None
        self._is_over = False
        self._woken = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._connection = connection_of(scope)
        self._connection.sender = self
        try:
            await self._send(send)
        finally:
            self._is_over = True
            self._connection.sender = None
            self._parts.clear()
            for answer in self._answers:
                answer.close()
            # They refer to this response, the error by its frames: no cycles are left to the collector.
            self._answers = ()
            self._error = self._pieces = None
            del self._encoder

    async def _send(self, send: Send) -> None:
        if self._connection.is_gone:
            raise ClientDisconnect
        try:
            await start_all(self._answers, self)
        except Exception as error:
            self.fail(error)
        await self._woken.wait()
        last = b"" if self._parts or self._pieces is not None else self._last(has_begun=False)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self._write = self._connection.write if self._num_samples == 1 else self._gather
        self._flush()
        self.release()
        self._woken.clear()
        if not self._is_over:
            await self._woken.wait()
        for piece in () if self._pieces is None or self._connection.is_gone else self._pieces:  # another answer failed
            self._parts.append(piece)
            await asyncio.sleep(0)
        self._flush()
        last = last or self._last(has_begun=True)
        if last:
            self._connection.write(last)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _last(self, has_begun: bool) -> bytes:
        if isinstance(self._error, ClientDisconnect):
            raise self._error
        return b"" if self._error is None else self._encoder.fail(self._error, has_begun)

    def add(self, index: int, delta: Delta) -> None:
        if self._is_over:
            return
        data = self._encoder.add(index, delta)
        if delta.finish is not None:
            self._num_open -= 1
        if not isinstance(data, bytes):
            self._pieces = data
            self.hold()
            if self._write == self._keep:
                self._woken.set()
            else:
                asyncio.get_running_loop().call_soon(self.release)
            return
        if not self._num_open:
            data += self._encoder.end()
        if data:
            self._write(data)
        if not self._num_open:
            self._end()

    def fail(self, error: Exception) -> None:
        if not self._is_over:
            self._error = error
            self._end()

    def leave(self) -> None:
        self.fail(ClientDisconnect())

    def hold(self) -> None:
        for answer in self._answers:
            answer.hold()

    def release(self) -> None:
        """Others run between the pieces of what was held for long."""
        until = time.monotonic() + PIECE_S
        if self._is_over or not self._write_pieces(until):
            return
        for answer in self._answers:
            if self._connection.is_full or self._pieces is not None:  # again, by the answer before
                return
            if not answer.release(until):
                asyncio.get_running_loop().call_soon(self.release)
                return

    def _write_pieces(self, until: float) -> bool:
        """False: the client is full, or goes on another time."""
        for piece in self._pieces or ():
            self._parts.append(piece)
            self._num_bytes += len(piece)
            if self._num_bytes > _LARGE:
                self._flush()
            if time.monotonic() > until:
                asyncio.get_running_loop().call_soon(self.release)
                return False
            if self._connection.is_full:
                return False
        if self._pieces is not None:
            self._pieces = None
            self._flush()
            if not self._num_open:
                if last := self._encoder.end():
                    self._write(last)
                self._end()
        return True

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self.hold()
        self._woken.set()

    def _gather(self, data: bytes) -> None:
        """Joins the tokens of one step, at most one of each sample, in one write."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._flush)
        self._parts.append(data)
        self._num_bytes += len(data)
        if len(self._parts) >= self._num_samples or self._num_bytes > _LARGE:
            self._flush()

    def _flush(self) -> None:
        if self._parts and not self._connection.is_gone:
            self._connection.write(b"".join(self._parts))
        self._parts.clear()
        self._num_bytes = 0

    def _end(self) -> None:
        self._is_over = True
        self._woken.set()
