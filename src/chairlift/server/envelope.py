"""Around every request: its id, and an answer for whatever escapes.

Always: each response carries `X-Request-Id`, the client's own if it sent a printable one; no exception reaches the
server below, except one that comes after a response has begun, which can only end the connection. While the server is
stopping, whatever asks for work (a POST) is turned away, and every response ends its connection.
"""

import logging
import secrets

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chairlift.server.errors import respond
from chairlift.server.load import Load

logger = logging.getLogger(__name__)
_MAX_ID = 128


class Envelope:
    def __init__(self, app: ASGIApp, load: Load) -> None:
        self._app = app
        self._load = load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _sent_id(scope) or secrets.token_hex(16)
        scope["request_id"] = name
        header = (b"x-request-id", name.encode())
        is_started = False

        async def send_named(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                message["headers"] = [*message["headers"], header]
                if self._load.is_draining:
                    message["headers"] = _closing(message["headers"])
            await send(message)

        try:
            await self._run(scope, receive, send_named)
        except ClientDisconnect:
            logger.debug("request %s: the client left", name)
        except Exception as error:
            if is_started:
                logger.error("request %s failed after its response had begun", name, exc_info=error)
                raise
            await respond(Request(scope), error)(scope, receive, send_named)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._load.begin()
        try:
            await self._app(scope, receive, send)
        finally:
            self._load.end()


def _closing(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [*(header for header in headers if header[0].lower() != b"connection"), (b"connection", b"close")]


def _sent_id(scope: Scope) -> str | None:
    for key, value in scope["headers"]:
        if key == b"x-request-id" and 0 < len(value) <= _MAX_ID and all(0x20 < byte < 0x7F for byte in value):
            return str(value, "ascii")
    return None
