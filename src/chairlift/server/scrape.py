"""GET /metrics."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.context import context_of
from chairlift.telemetry.metrics.exposition import CONTENT_TYPE, exposition


async def metrics(http: Request) -> Response:
    """Of the whole server, whichever front end is asked."""
    book = context_of(http).book
    if book.metrics is None:
        raise HTTPException(404)
    book.flush()
    names_for_vllm = book.model if context_of(http).settings.vllm_metric_names else None
    # Reading the files of all processes takes milliseconds, in which streams go on.
    text = await asyncio.to_thread(exposition, book.metrics.folder, names_for_vllm)
    return Response(text, media_type=CONTENT_TYPE)
