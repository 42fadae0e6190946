"""The operator's routes for adapters: load, unload, list."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chairlift.core.errors import InvalidConfig
from chairlift.live.adapters.registry import AdapterRegistry, UnknownAdapter
from chairlift.live.wire.client import EngineClient
from chairlift.server.admission.bounds import Load
from chairlift.server.errors import error_json
from chairlift.server.receive import read_body


class LoadAdapter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadAdapter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    lora_name: str


def adapter_routes(load: Load, client: EngineClient, registry: AdapterRegistry | None) -> list[Route]:
    """None where the server takes no adapters."""
    if registry is None:
        return []
    routes = _Adapters(load, client, registry)
    return [
        Route("/v1/load_lora_adapter", routes.load, methods=["POST"]),
        Route("/v1/unload_lora_adapter", routes.unload, methods=["POST"]),
        Route("/admin/adapters", routes.all),
    ]


class _Adapters:
    def __init__(self, load: Load, client: EngineClient, registry: AdapterRegistry) -> None:
        self._load = load
        self._client = client
        self._registry = registry
        self._unloading: set[asyncio.Task[None]] = set()  # of what others took the place of

    async def all(self, http: Request) -> Response:
        known = {adapter.name: adapter.path for adapter in self._registry.offered()}
        return _json(
            [{"name": name, "path": known.get(name)} for name in await asyncio.to_thread(self._registry.names)]
        )

    async def load(self, http: Request) -> Response:
        """A folder below --lora-dir, checked before it is offered."""
        try:
            asked = msgspec.json.decode(await read_body(http, self._load), type=LoadAdapter)
            before = {adapter.name: adapter for adapter in self._registry.offered()}.get(asked.lora_name)
            adapter = await asyncio.to_thread(self._registry.load, asked.lora_name, asked.lora_path, asked.load_inplace)
        except (msgspec.MsgspecError, InvalidConfig) as error:
            return _refused(400, error)
        if before is not None:  # its requests go on with it, new ones have the new one
            task = asyncio.ensure_future(self._client.replicas.unload(before.number))
            self._unloading.add(task)
            task.add_done_callback(self._unloading.discard)
        return _json({"name": adapter.name, "path": adapter.path})

    async def unload(self, http: Request) -> Response:
        """New requests are refused at once; answers when the last one has ended."""
        try:
            asked = msgspec.json.decode(await read_body(http, self._load), type=UnloadAdapter)
            adapter = await asyncio.to_thread(self._registry.remove, asked.lora_name)
        except UnknownAdapter as error:
            return _refused(404, error)
        except (msgspec.MsgspecError, InvalidConfig) as error:
            return _refused(400, error)
        await self._client.replicas.unload(adapter.number)
        return _json({"name": adapter.name})


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _refused(status: int, error: Exception) -> Response:
    return Response(error_json(status, str(error)), status, media_type="application/json")
