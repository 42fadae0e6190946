"""Room for large bodies: how many bytes of them may be read and made into tokens at a time, in the whole server.

Always: a body of more than `SMALL` bytes counts with all that it may have, from before the rest of it is read until its
text has become tokens or its request is over. One that finds no room waits where it is, in the client and the kernel,
for as long as a request may take to arrive; then it is refused. One that finds no other is taken however large it is.
"""

import asyncio
import time

from starlette.requests import Request
from starlette.types import Scope

from chairlift.live.shared_memory.counts import Count
from chairlift.server.admission.bounds import Load
from chairlift.server.admission.rejected import Overloaded

SMALL = 64 * 1024
ROOM = 16 * 2**20  # bytes; as much again for the text in them, and what the tokenizer takes
_LOOK_S = 0.02  # other front ends leave without telling
_NAME = "chairlift.body"


class Body:
    """What the body of one request takes of the room."""

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
    """Its text is tokens now, or its request is over; may be called again."""
    body: Body | None = scope.get(_NAME)
    if body is not None:
        body.leave()
