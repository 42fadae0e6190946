"""What the OpenAI routes share: reading a body, and responding in JSON or as an event stream."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.context import context_of
from chairlift.server.openai.fields import Body, read
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.whole import whole_response
from chairlift.server.receive import read_body, until_gone
from chairlift.server.request_log.record import ignore, record_of
from chairlift.server.stream import ByteStream, DeltaEncoder

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
R = TypeVar("R", bound=Body)


async def read_request(http: Request, kind: type[R]) -> R:
    context = context_of(http)
    body = await read_body(http, context.load)
    request, ignored = read(body, kind)
    ignore(http, ignored)
    await context.adapter(request.model, record_of(http).cost)
    return request


def json_response(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


async def respond(
    http: Request,
    reply: Reply,
    encoder: Callable[[Reply], DeltaEncoder],
    complete: Callable[[Reply, list[Choice]], Iterable[bytes]],
) -> Response:
    """`encoder` makes the events of a stream, `complete` the pieces of a whole answer's JSON."""
    if reply.request.stream:
        return ByteStream(reply.answers, encoder(reply), headers=_HEADERS)
    try:
        choices = await until_gone(http.receive, reply.collect())
    finally:
        for answer in reply.answers:
            answer.close()
    return await whole_response(complete(reply, choices))
