"""Wraps every request: gives it an id, checks it, turns exceptions into responses, and logs it at its end.

Always: each response carries `X-Request-Id`, the client's own if it sent a printable one, and the names of fields that
had no effect; no exception leaves, except one after a response has begun, which can only end the connection. While the
server is stopping, a request for work (POST) is refused and every response ends its connection.
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.bounds import Load
from chairlift.server.errors import respond
from chairlift.server.request_log.log import RequestLog
from chairlift.server.request_log.record import HEADER, names_of
from chairlift.server.sockets.connection import receive_rest

logger = logging.getLogger(__name__)
IGNORED = HEADER.lower().encode()
Check = Callable[[Scope], None]  # raises where a request is refused
RouteOf = Callable[[Scope], tuple[str, bool]]  # a request's route, and whether it asks an engine


class Envelope:
    def __init__(self, app: ASGIApp, check: Check, load: Load, request_log: RequestLog, route_of: RouteOf) -> None:
        self._app = app
        self._check = check
        self._load = load
        self._request_log = request_log
        self._route_of = route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = self._request_log.open(scope)
        name = record.id
        is_started = False

        async def send_named(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                record.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
                if record.ignored:
                    message["headers"].append((IGNORED, ",".join(names_of(record)).encode()))
                if self._load.is_draining:
                    kept = (header for header in message["headers"] if header[0].lower() != b"connection")
                    message["headers"] = [*kept, (b"connection", b"close")]
            await send(message)

        try:
            with self._load.in_flight() if scope["method"] == "POST" else nullcontext():
                self._check(scope)
                await self._app(scope, receive, send_named)
        except ClientDisconnect:
            record.is_gone = True
            logger.debug("request %s: the client left", name)
        except Exception as error:
            if is_started:
                logger.error("request %s failed after its response had begun", name, exc_info=error)
                raise
            if self._load.is_draining or Headers(scope=scope).get("connection", "").lower() == "close":
                await receive_rest(scope, receive)
            await respond(Request(scope), error)(scope, receive, send_named)
        finally:
            leave_body(scope)
            record.cost.settle(record.status)
            ended = self._request_log.close(scope, record, *self._route_of(scope))
            if ended is not None:
                self._load.note_end(*ended)
