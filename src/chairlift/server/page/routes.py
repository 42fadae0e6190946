"""GET /, /live and /live/requests/N: the page, what it is fed with, and where the time of one request went."""

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
from chairlift.server.page.document import document
from chairlift.server.page.feeds import Feed, Feeds
from chairlift.server.receive import until_gone


async def root(http: Request) -> Response:
    """The page for browsers; for others a few words of JSON."""
    if "text/html" not in http.headers.get("accept", ""):
        return await welcome(http)
    html, headers = document()
    return Response(html, headers=headers, media_type="text/html")


async def live(http: Request) -> Response:
    context, feeds = context_of(http), http.app.state.feeds
    if context.load.is_draining:  # else a page, which asks again, would hold on to a connection
        raise Stopping
    assert isinstance(feeds, Feeds)
    return Feed(feeds, lambda: about(context))


async def explain(http: Request) -> Response:
    name = http.path_params["name"]
    told = None
    if name.isascii() and name.isdigit() and len(name) < 16:
        # Questions wait for each other: nobody should have to wait for one whose asker is gone.
        told = await until_gone(http.receive, context_of(http).client.watching.explain(int(name)))
    if told is None:
        raise HTTPException(404, f"request {name[:16]} is not among those that are shown, or not any more")
    return Response(_as_seen_by(key_of(http), told), media_type="application/json")


def _as_seen_by(key: ApiKey | None, told: bytes) -> bytes:
    """Where there are keys, nobody is told the name of another."""
    if key is None:
        return told
    story = msgspec.json.decode(told)
    return told if story["user"] == key.name else msgspec.json.encode(story | {"user": ""})
