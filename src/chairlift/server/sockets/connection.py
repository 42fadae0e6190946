"""The connection under a response: writes bytes where they are made, and tells of a client that is slow or gone.

Always: each write goes out as one chunk of the body, in order. ASGI's `send` only starts and ends the response: it
would cost a switch of tasks and five calls for every token.
"""

from typing import Protocol

from starlette.types import Receive, Scope

from chairlift.server.sockets.guard import GuardedProtocol

_NAME = "chairlift.connection"


class Sender(Protocol):
    def hold(self) -> None:
        """The buffer is full."""
        ...

    def release(self) -> None: ...

    def leave(self) -> None:
        """The client is gone."""
        ...


class Connection(Protocol):
    sender: Sender | None

    @property
    def is_full(self) -> bool: ...

    @property
    def is_gone(self) -> bool: ...

    @property
    def is_receiving(self) -> bool:
        """Whether more of a request is to come."""
        ...

    @property
    def has_unsent(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def cut(self) -> None:
        """Ends the connection and drops what is unsent; tells the sender."""
        ...


def connection_of(scope: Scope) -> Connection:
    connection: Connection = scope["extensions"][_NAME]
    return connection


async def receive_rest(scope: Scope, receive: Receive) -> None:
    """Drops the rest of a body: where the connection ends with the response, a client that is still sending would not
    see one."""
    connection = connection_of(scope)
    while connection.is_receiving and (await receive()).get("more_body"):
        pass


def lend(scope: Scope, connection: Connection) -> None:
    scope["extensions"] = {_NAME: connection}


class ConnectionProtocol(GuardedProtocol):
    """Lends itself to the application as its `Connection`."""

    sender: Sender | None = None
    is_gone = False

    def write(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    @property
    def is_receiving(self) -> bool:
        return self._receiving_since is not None

    @property
    def has_unsent(self) -> bool:
        return self.transport.get_write_buffer_size() > 0

    def cut(self) -> None:
        self.drop()
        self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        lend(self.scope, self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # A request refers to its connection. If that referred back, both would stay until the collector runs.
        self._unset_keepalive_if_required()
        self._cycles = []
        self.pipeline.clear()
        self.cycle = self.scope = None  # type: ignore[assignment]

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.sender is not None:
            self.sender.hold()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.sender is not None:
            self.sender.release()

    def drop(self) -> None:
        self.is_gone = True
        super().drop()
        if self.sender is not None:
            self.sender.leave()
