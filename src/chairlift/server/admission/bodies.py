"""Bounds the bytes of large bodies that the whole server reads and tokenizes at a time.

Always: a body of more than `SMALL` bytes counts with its full length, from before the rest is read until its text is
tokens or its request has ended. Without room it waits in the client and the kernel, up to `max_receive_seconds`, and is
then refused. A body that is alone is accepted whatever its size.

Bounds the values in a large JSON body before it is decoded, when a byte or two can become a hundred.

Always: a body that passes takes at most tens of megabytes and a tenth of a second to decode. Of valid requests only
lists of token ids come near the bounds.
"""

import asyncio
import time

from starlette.requests import Request
from starlette.types import Scope

from chairlift.live.shared_memory.counts import Count
from chairlift.server.admission.bounds import Load
from chairlift.server.admission.cost import MAX_CONTAINERS, MAX_STRINGS, MAX_VALUES, check_count
from chairlift.server.admission.rejected import Overloaded
from chairlift.text.structured.source import MAX_DEPTH


def check_values(body: bytes | bytearray) -> None:
    """Raises `InvalidRequest`; invalid JSON is left to the decoder."""
    plain = _plain(body)
    check_count("body", "strings", plain.count(b'"') // 2, MAX_STRINGS)
    outside = _outside(plain)
    check_count("body", "lists and objects", outside.count(b"[") + outside.count(b"{"), MAX_CONTAINERS)
    check_count("body", "values", outside.count(b","), MAX_VALUES)


def is_deep(body: bytes | bytearray) -> bool:
    """Whether valid JSON has more levels than code that calls itself for each level can take."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    holders = _outside(_plain(body)).translate(_ALIKE, _NO_HOLDERS)
    for _ in range(MAX_DEPTH):
        holders = holders.replace(b"[]", b"")  # those that hold none, which is one level
    return bool(holders)


def _plain(body: bytes | bytearray) -> bytes | bytearray:
    """Without the quotes that end nothing."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def _outside(plain: bytes | bytearray) -> bytes:
    """Of its strings."""
    return b"".join(plain.split(b'"')[::2])


_ALIKE = bytes.maketrans(b"{}", b"[]")
_NO_HOLDERS = bytes(set(range(256)) - set(b"[]{}"))
SMALL = 64 * 1024
ROOM = 16 * 2**20  # bytes; their text takes as much again, and the tokenizer more
_LOOK_S = 0.02  # other front ends give no notice when they free room
_NAME = "chairlift.body"


class Body:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._num_bytes = 0

    async def take(self, num_bytes: int) -> None:
        until = time.monotonic() + self._load.settings.max_receive_seconds
        while not self._try(num_bytes):
            if time.monotonic() > until:
                raise Overloaded("there is no room for another large body", 1)
            await asyncio.sleep(_LOOK_S)

    def leave(self) -> None:
        if self._num_bytes:
            self._load.counts.add(Count.BODY_BYTES, -self._num_bytes)
            self._num_bytes = 0

    def _try(self, num_bytes: int) -> bool:
        counts = self._load.counts
        with counts.locked():
            taken = counts.total(Count.BODY_BYTES)
            has_room = not taken or taken + num_bytes <= ROOM
            if has_room:
                counts.add(Count.BODY_BYTES, num_bytes)
                self._num_bytes = num_bytes
        return has_room


def begin_body(http: Request, load: Load) -> Body:
    body = http.scope[_NAME] = Body(load)
    return body


def leave_body(scope: Scope) -> None:
    """Its text is tokens now, or its request has ended; may be called again."""
    body: Body | None = scope.get(_NAME)
    if body is not None:
        body.leave()
