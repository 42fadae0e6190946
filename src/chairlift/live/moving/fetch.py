"""How a piece gets to the engine that needs it: mapped where it is on the same machine, else asked for over a socket.

A way is a function of a ticket and a deadline that gives the bytes for a while, or raises MoveFailed; a third way, such
as RDMA, is another function and a line in `fetch`. Whatever the way, the bytes are checked here.
"""

import mmap
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chairlift.live.moving.sockets import PieceClient
from chairlift.live.moving.ticket import MoveFailed, Ticket, is_name


@dataclass(frozen=True, slots=True)
class Fetcher:
    folder: Path | None  # of the pieces on this machine; None: all are asked for
    client: PieceClient = field(default_factory=PieceClient)

    def fetch(self, ticket: Ticket, deadline: float, take: Callable[[memoryview], None]) -> None:
        """Hands the bytes of a piece to `take`, if they are right; `deadline` by the monotonic clock."""
        if not is_name(ticket.name):
            raise MoveFailed("its ticket names no piece")
        if time.monotonic() > deadline:
            self.discard(ticket)
            raise MoveFailed("it is too late")
        with self._way(ticket, deadline) as data:
            if len(data) != ticket.num_bytes or zlib.crc32(data) != ticket.checksum:
                raise MoveFailed("the bytes are not those that were sent")
            take(data)

    def discard(self, ticket: Ticket) -> None:
        """Removes a piece that will not be fetched, so that others find room; on another machine its source does so."""
        if self.folder is not None and is_name(ticket.name):
            (self.folder / ticket.name).unlink(missing_ok=True)

    @contextmanager
    def _way(self, ticket: Ticket, deadline: float) -> Iterator[memoryview]:
        path = None if self.folder is None else self.folder / ticket.name
        if path is not None and path.exists():
            with _mapped(path) as data:
                yield data
        elif ticket.address is not None:
            yield memoryview(self.client.fetch(ticket.address, ticket.name, ticket.num_bytes, deadline))
        else:
            raise MoveFailed("the piece is on another machine, or gone")


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """The file itself, which is removed afterwards."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
        path.unlink(missing_ok=True)
