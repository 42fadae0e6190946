"""Receiving from a client: a bounded body, and word that it left, upon which the work for it is cancelled at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from chairlift.server.admission.bodies import SMALL, begin_body, check_values
from chairlift.server.admission.bounds import Load
from chairlift.server.request_log.record import record_of

T = TypeVar("T")


class BodyTooLarge(Exception):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the body is larger than the limit of {max_bytes} bytes")


async def read_body(request: Request, load: Load) -> bytearray:
    """Waits for room for a large body; `leave_body` frees it."""
    max_bytes, length = load.settings.max_body_bytes, request.headers.get("content-length", "")
    is_known = length.isascii() and length.isdigit() and len(length) < 20
    if is_known and int(length) > max_bytes:
        raise BodyTooLarge(max_bytes)
    body, cost = bytearray(), record_of(request).cost
    async for part in request.stream():
        if len(body) <= SMALL < len(body) + len(part):
            await begin_body(request, load).take(int(length) if is_known else max_bytes)
        body += part
        cost.num_bytes = len(body)
        if len(body) > max_bytes:
            raise BodyTooLarge(max_bytes)
    if len(body) > SMALL:
        async with load.turn:  # other requests run before this body is decoded, and between two
            check_values(body)
            await asyncio.sleep(0)
    return body


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; cancels it and raises `ClientDisconnect` when the client leaves first."""
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
