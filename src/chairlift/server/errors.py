"""One status and one body for each kind of exception.

Always: a client sees the text of a `ChairliftError` and never a traceback; an unexpected error is logged under its
request id and shown as an internal error. Bodies have the form of the API that was asked: OpenAI's,
Anthropic's, or llm-serving's `{"detail": ...}`.
"""

import logging
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import ContextFull, EngineUnavailable, InvalidRequest
from chairlift.live.wire.generation import TooSlow
from chairlift.server.admission.rejected import Rejected
from chairlift.server.answer import RequestFailed
from chairlift.server.anthropic.dialect import failure_body, speaks_anthropic
from chairlift.server.context import UnknownModel
from chairlift.server.foreign_routes import foreign_route
from chairlift.server.receive import BodyTooLarge

logger = logging.getLogger(__name__)

# Where the name is not that of the HTTP status, in any version of Python.
_TYPES = {
    413: "RequestTooLargeError",
    422: "UnprocessableEntityError",
    429: "OverloadedError",
    500: "InternalServerError",
    504: "OutOfTimeError",
}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}  # OpenAI's words
_ROUTES = "/openapi.json"


class Error(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str  # the HTTP status, but where clients know a word


class ErrorBody(msgspec.Struct, frozen=True):
    error: Error


class Detail(msgspec.Struct, frozen=True):
    """An error of the llm-serving routes: a message, or a list of errors in the body."""

    detail: str | list[dict[str, Any]]


class Described(NamedTuple):
    status: int
    body: ErrorBody


def describe(error: Exception, request_id: str) -> Described:
    match error:
        case ContextFull():
            return _described(400, str(error), error.field, "context_length_exceeded")
        case InvalidRequest():
            return _described(400, str(error), error.field)
        case Rejected():
            return _described(error.status, str(error))
        case UnknownModel():
            return _described(404, str(error), "model", "model_not_found")
        case BodyTooLarge():
            return _described(413, str(error))
        case EngineUnavailable():
            return _described(503, str(error))
        case RequestFailed() | TooSlow():
            return _described(500, str(error))
        case HTTPException():
            return _described(error.status_code, error.detail)
    logger.error("request %s failed", request_id, exc_info=error)
    return _described(500, f"internal error; the server's log has more under request id {request_id}")


def _described(status: int, message: str, param: str | None = None, code: str | None = None) -> Described:
    kind = _TYPES.get(status) or HTTPStatus(status).phrase.title().replace(" ", "") + "Error"
    return Described(status, ErrorBody(Error(message, kind, param, code or _CODES.get(status, str(status)))))


def error_json(status: int, message: str) -> bytes:
    """For responses below the application."""
    return msgspec.json.encode(_described(status, message).body)


def respond(request: Request, error: Exception) -> Response:
    is_llm_serving = request.scope["path"].startswith(("/models/", "/serving/"))
    if isinstance(error, HTTPException) and not is_llm_serving:
        error = _located(error, request)
    status, body = describe(error, request_id(request))
    content: msgspec.Struct = Detail(body.error.message) if is_llm_serving else body
    if speaks_anthropic(request):
        content = failure_body(error, status, body.error.message, request_id(request))
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if isinstance(error, Rejected) and error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    elif status == 503:
        headers["Retry-After"] = "1"
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def _located(error: HTTPException, request: Request) -> HTTPException:
    """With the path, which the framework leaves out."""
    path = request.scope["path"][:200]
    if error.status_code == 404 and error.detail == HTTPStatus.NOT_FOUND.phrase:
        routes = [route.path for route in request.app.routes]
        others = f"{_ROUTES} lists the routes" if _ROUTES in routes else f"there is {', '.join(routes)}"
        return HTTPException(404, f"there is nothing at {path}; {foreign_route(path) or others}", error.headers)
    if error.status_code == 405:
        allowed = dict(error.headers or {}).get("Allow", "another method")
        return HTTPException(405, f"{path} does not take {request.method} but {allowed}", error.headers)
    return error


def request_id(request: Request) -> str:
    return str(request.scope["request_id"])
