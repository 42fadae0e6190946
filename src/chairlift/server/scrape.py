"""GET /metrics: gathered in a thread, once at a time; scrapes that come meanwhile share the result."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.context import ServerContext, context_of
from chairlift.telemetry.metrics.exposition import CONTENT_TYPE, exposition
from chairlift.telemetry.metrics.front_end import FrontEndMetrics


async def metrics(http: Request) -> Response:
    """Those of the whole server, from any front end."""
    counted = context_of(http).request_log.metrics
    if counted is None:
        raise HTTPException(404)
    scrape: Scrape = http.app.state.scrape
    return Response(await scrape(counted), media_type=CONTENT_TYPE)


class Scrape:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._in_flight: asyncio.Future[bytes] | None = None

    async def __call__(self, counted: FrontEndMetrics) -> bytes:
        if self._in_flight is None or self._in_flight.done():
            self._in_flight = asyncio.ensure_future(self._gather(counted))
        return await asyncio.shield(self._in_flight)

    async def _gather(self, counted: FrontEndMetrics) -> bytes:
        request_log = self._context.request_log
        request_log.flush()
        names_for_vllm = request_log.model if self._context.settings.vllm_metric_names else None
        # In a thread: reading the files of all processes takes milliseconds.
        return await asyncio.to_thread(exposition, counted.folder, names_for_vllm)
