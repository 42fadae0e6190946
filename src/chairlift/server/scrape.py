"""GET /metrics.

Always: figures are gathered once at a time in a front end, in a thread; who asks meanwhile is given the same.
"""

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.context import ServerContext, context_of
from chairlift.telemetry.metrics.exposition import CONTENT_TYPE, exposition
from chairlift.telemetry.metrics.front_end import FrontEndMetrics


async def metrics(http: Request) -> Response:
    """Of the whole server, whichever front end is asked."""
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
        if self._in_flight is None:
            self._in_flight = asyncio.ensure_future(self._gather(counted))
        return await asyncio.shield(self._in_flight)

    async def _gather(self, counted: FrontEndMetrics) -> bytes:
        request_log = self._context.request_log
        try:
            request_log.flush()
            names_for_vllm = request_log.model if self._context.settings.vllm_metric_names else None
            # Reading the files of all processes takes milliseconds, in which streams go on.
            return await asyncio.to_thread(exposition, counted.folder, names_for_vllm)
        finally:
            self._in_flight = None
