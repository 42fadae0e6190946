"""One HTTP exchange below the framework: a bounded body in, a stream of bytes out, and noticing that the client left.

Always: nothing is sent before the first bytes are there, so a request that fails until then still gets a proper status;
when the client leaves, the work for it is cancelled at once and its request freed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Header = tuple[bytes, bytes]
T = TypeVar("T")


class BodyTooLarge(Exception):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the body is larger than the limit of {max_bytes} bytes")


async def read_body(request: Request, max_bytes: int) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > max_bytes:
        raise BodyTooLarge(max_bytes)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise BodyTooLarge(max_bytes)
    return bytes(body)


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`; cancels it and raises `ClientDisconnect` when the client leaves first."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class ByteStream(Response):
    """Sends `parts` as they come and calls `close` at the end, however that comes about.

    An exception after the first part is turned into last bytes by `on_error`; without that it ends the connection.
    """

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        *,
        headers: list[Header],
        close: Callable[[], None],
        on_error: Callable[[Exception], bytes] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = headers
        self._parts = parts
        self._close = close
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._pump(send))
        finally:
            self._close()

    async def _pump(self, send: Send) -> None:
        is_started = False
        try:
            async for part in self._parts:
                if not is_started:
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    is_started = True
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except Exception as error:
            if not is_started or self._on_error is None:
                raise
            await send({"type": "http.response.body", "body": self._on_error(error), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
