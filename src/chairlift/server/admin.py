"""The operator's application, on a port of its own: only with `--admin-port`, and on this machine unless `--admin-host`
says otherwise."""

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
from starlette.types import ASGIApp, Scope

from chairlift.config.keys import read_keys
from chairlift.core.errors import ChairliftError
from chairlift.live.adapters.registry import AdapterRegistry
from chairlift.live.wire.client import EngineClient
from chairlift.server.admin_adapters import adapter_routes
from chairlift.server.admission.api_keys import check_key
from chairlift.server.admission.bounds import Load
from chairlift.server.admission.origins import check_origin
from chairlift.server.errors import error_json
from chairlift.server.reload import ReloadResult, last_reload
from chairlift.server.request_log.envelope import Envelope
from chairlift.server.request_log.log import RequestLog

_TIME_LIMIT_S = 10.0


class _AdminApp(Starlette):
    def build_middleware_stack(self) -> ASGIApp:
        def check(scope: Scope) -> None:
            if not self.state.keys:
                check_origin(scope, [], [])
            check_key(scope, self.state.keys)

        return Envelope(self.router, check, self.state.load, RequestLog(), lambda scope: ("admin", False))


def create_admin_app(
    load: Load, reloads: Path, client: EngineClient, adapters: AdapterRegistry | None = None
) -> Starlette:
    """`reloads`: the file with the result of the parent's last reload."""

    async def reload(http: Request) -> Response:
        result = await _ask_parent(reloads)
        if result.error:
            return Response(error_json(400, result.error), 400, media_type="application/json")
        content = {"changed": result.changed, "needs_restart": result.needs_restart, "values": result.values}
        return Response(msgspec.json.encode(content), media_type="application/json")

    async def replicas(http: Request) -> Response:
        return Response(msgspec.json.encode(client.replicas.loads()), media_type="application/json")

    async def drain(http: Request) -> Response:
        return _drain(client, http.path_params["replica"], is_on=True)

    async def resume(http: Request) -> Response:
        return _drain(client, http.path_params["replica"], is_on=False)

    app = _AdminApp(
        routes=[
            Route("/admin/reload", reload, methods=["POST"]),
            Route("/admin/replicas", replicas),
            Route("/admin/replicas/{replica:int}/drain", drain, methods=["POST"]),
            Route("/admin/replicas/{replica:int}/resume", resume, methods=["POST"]),
            *adapter_routes(load, client, adapters),
        ]
    )
    app.state.load = load
    app.state.keys = read_keys(load.settings.admin_key, None)
    return app


def _drain(client: EngineClient, replica: int, is_on: bool) -> Response:
    """Asks the replica, which then tells all front ends."""
    if not client.replicas.drain(replica, is_on):
        message = f"there is no replica {replica} now; /admin/replicas lists them"
        return Response(error_json(404, message), 404, media_type="application/json")
    return Response(msgspec.json.encode({"replica": replica, "is_draining": is_on}), media_type="application/json")


async def _ask_parent(reloads: Path) -> ReloadResult:
    before = last_reload(reloads).number
    parent = multiprocessing.parent_process()
    os.kill(os.getppid() if parent is None or parent.pid is None else parent.pid, signal.SIGHUP)
    deadline = time.monotonic() + _TIME_LIMIT_S
    while (result := last_reload(reloads)).number == before:
        if time.monotonic() > deadline:
            raise ChairliftError("the settings were not read again in time")
        await asyncio.sleep(0.01)
    return result
