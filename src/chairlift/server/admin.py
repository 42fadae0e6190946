"""The admin application: what only the operator may do, on a port of its own.

Always: it is served only where `--admin-port` asks for it, and to this machine alone unless `--admin-host` says so.
"""

import asyncio
import multiprocessing
import os
import signal
import time
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from chairlift.config.keys import read_keys
from chairlift.core.errors import ChairliftError
from chairlift.server.admission.api_keys import RequireApiKey
from chairlift.server.admission.bounds import Load
from chairlift.server.admission.origins import LocalOnly
from chairlift.server.errors import error_json
from chairlift.server.reload import ReloadResult, last_reload
from chairlift.server.request_log.envelope import Envelope
from chairlift.server.request_log.log import RequestLog

_TIME_LIMIT_S = 10.0


class _AdminApp(Starlette):
    def build_middleware_stack(self) -> ASGIApp:
        inner = LocalOnly(RequireApiKey(self.router, lambda: self.state.keys), lambda: not self.state.keys, [], [])
        return Envelope(inner, self.state.load, RequestLog(), lambda scope: ("admin", False))


def create_admin_app(load: Load, reloads: Path) -> Starlette:
    """`reloads`: where the parent says what came of its last look at the settings."""

    async def reload(http: Request) -> Response:
        said = await _ask_parent(reloads)
        if said.error:
            return Response(error_json(400, said.error), 400, media_type="application/json")
        content = {"changed": said.changed, "needs_restart": said.needs_restart, "values": said.values}
        return Response(msgspec.json.encode(content), media_type="application/json")

    app = _AdminApp(routes=[Route("/admin/reload", reload, methods=["POST"])])
    app.state.load = load
    app.state.keys = read_keys(load.settings.admin_key, None)
    return app


async def _ask_parent(reloads: Path) -> ReloadResult:
    before = last_reload(reloads).number
    parent = multiprocessing.parent_process()
    os.kill(os.getppid() if parent is None or parent.pid is None else parent.pid, signal.SIGHUP)
    deadline = time.monotonic() + _TIME_LIMIT_S
    while (said := last_reload(reloads)).number == before:
        if time.monotonic() > deadline:
            raise ChairliftError("the settings were not read again in time")
        await asyncio.sleep(0.01)
    return said
