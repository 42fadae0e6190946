"""A connection for an application in process: what is written goes into the body; the client is always there."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chairlift.server.sockets.connection import Sender, lend


class MemoryConnection:
    is_full = False
    is_gone = False
    has_unsent = False
    is_receiving = False
    sender: Sender | None = None

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        assert data, "an empty chunk would end the body"
        self.data += data

    def cut(self) -> None:
        assert self.sender is not None
        self.sender.leave()


def with_connection(app: ASGIApp) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        connection = MemoryConnection()
        lend(scope, connection)

        async def send_all(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": connection.data + message.get("body", b"")}
                connection.data = b""
            await send(message)

        await app(scope, receive, send_all)

    return call
