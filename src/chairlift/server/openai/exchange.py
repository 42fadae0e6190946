"""What the OpenAI routes share: reading a body, naming the model, answering in JSON or as an event stream."""

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.context import context_of
from chairlift.server.errors import request_id
from chairlift.server.exchange import read_body
from chairlift.server.ignored import ignore
from chairlift.server.openai.chunks import HEADERS, Chunks, Frame
from chairlift.server.openai.fields import read
from chairlift.server.openai.job import Job, check_model
from chairlift.server.openai.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    SamplingRequest,
    TokenizeRequest,
)
from chairlift.server.stream import ByteStream

R = TypeVar("R", CompletionRequest, ChatRequest, TokenizeRequest, DetokenizeRequest)


async def read_request(http: Request, kind: type[R]) -> R:
    context = context_of(http)
    body = await read_body(http, context.load)
    request, ignored = read(body, kind)
    ignore(http, ignored)
    check_model(context, request.model)
    return request


def user_of(http: Request, request: SamplingRequest) -> str:
    """Who asks, for policies that share between users: the body's `user`, else the API key, so spelled that logs and
    traces do not give it away."""
    if request.user:
        return request.user
    kind, _, key = http.headers.get("authorization", "").partition(" ")
    return "key-" + sha256(key.encode()).hexdigest()[:16] if kind.lower() == "bearer" and key else ""


def json_response(content: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def event_stream(http: Request, job: Job, frames: Sequence[Frame], *, is_chat: bool) -> ByteStream:
    script = Chunks(job, frames, is_chat=is_chat, name=request_id(http))
    return ByteStream(job.answers, script, headers=HEADERS)
