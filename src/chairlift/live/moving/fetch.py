"""How a piece gets to the engine that needs it: mapped where both are on one node, else asked for over a socket.

A way is a function of a ticket and a deadline that gives the bytes for a while, or raises MoveFailed; a third way, such
as RDMA, is another function and a line in `fetch`. Whatever the way, the bytes are checked here.
"""

import mmap
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chairlift.live.moving.sockets import fetched_parts
from chairlift.live.moving.ticket import MoveFailed, Ticket


def fetch(ticket: Ticket, deadline: float, take: Callable[[memoryview], None]) -> None:
    """Hands the bytes of a piece to `take`, if they are right; `deadline` by the monotonic clock."""
    if time.monotonic() > deadline:
        raise MoveFailed("it is too late")
    way = _mapped if ticket.path is not None and Path(ticket.path).exists() else _received
    with way(ticket, deadline) as data:
        if len(data) != ticket.num_bytes or zlib.crc32(data) != ticket.checksum:
            raise MoveFailed("the bytes are not those that were sent")
        take(data)


@contextmanager
def _mapped(ticket: Ticket, _deadline: float) -> Iterator[memoryview]:
    """The file itself, which is removed afterwards."""
    assert ticket.path is not None
    try:
        file = os.open(ticket.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
        finally:
            os.close(file)
    except (OSError, ValueError) as error:  # gone, or empty
        raise MoveFailed(f"the piece cannot be read: {error}") from error
    view = memoryview(mapped)
    try:
        yield view
    finally:
        view.release()
        mapped.close()
        Path(ticket.path).unlink(missing_ok=True)


@contextmanager
def _received(ticket: Ticket, deadline: float) -> Iterator[memoryview]:
    if ticket.address is None:
        raise MoveFailed("the piece is on another node, or gone")
    yield memoryview(fetched_parts(ticket.address, ticket.name, ticket.num_bytes, deadline))
