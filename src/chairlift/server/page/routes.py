"""GET /, /live, /live/requests/N and /docs: the page, its feed, the latency breakdown of a request, and the routes."""

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chairlift.config.keys import ApiKey
from chairlift.server.admission.api_keys import key_of
from chairlift.server.admission.rejected import Stopping
from chairlift.server.context import context_of
from chairlift.server.openai.models import welcome
from chairlift.server.page.about import about
from chairlift.server.page.document import DOCS, LIVE, Page, document
from chairlift.server.page.feeds import Feed, Feeds
from chairlift.server.receive import until_gone


async def root(http: Request) -> Response:
    """The page for browsers, JSON for others."""
    if "text/html" not in http.headers.get("accept", ""):
        return await welcome(http)
    return _html(LIVE)


async def docs(http: Request) -> Response:
    return _html(DOCS)


def _html(page: Page) -> Response:
    html, headers = document(page)
    return Response(html, headers=headers, media_type="text/html")


async def live(http: Request) -> Response:
    context, feeds = context_of(http), http.app.state.feeds
    if context.load.is_draining:  # else a page, which reconnects, would keep a connection open
        raise Stopping
    assert isinstance(feeds, Feeds)
    return Feed(feeds, lambda: about(context))


async def explain(http: Request) -> Response:
    name = http.path_params["name"]
    breakdown = None
    if name.isascii() and name.isdigit() and len(name) < 16:
        # Queries are answered one at a time: one from a client that left must not delay the next.
        breakdown = await until_gone(http.receive, context_of(http).client.watching.explain(int(name)))
    if breakdown is None:
        raise HTTPException(404, f"request {name[:16]} is not among those that are shown, or not any more")
    return Response(_as_seen_by(key_of(http), breakdown), media_type="application/json")


def _as_seen_by(key: ApiKey | None, breakdown: bytes) -> bytes:
    """Without the names of other keys."""
    if key is None:
        return breakdown
    fields = msgspec.json.decode(breakdown)
    return breakdown if fields["user"] == key.name else msgspec.json.encode(fields | {"user": ""})
