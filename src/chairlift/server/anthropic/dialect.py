"""Which requests are answered as Anthropic's API does, and the body of its errors."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import ContextFull

_VERSION = "anthropic-version"  # the header that Anthropic's clients send
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
Endpoint = Callable[[Request], Awaitable[Response]]


class Failure(msgspec.Struct, frozen=True):
    type: str
    message: str


class FailureBody(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    error: Failure
    request_id: str


def speaks_anthropic(http: Request) -> bool:
    path = http.scope["path"]
    return path.startswith("/v1/messages") or (path.startswith("/v1/models") and _VERSION in http.headers)


def by_dialect(openai: Endpoint, anthropic: Endpoint) -> Endpoint:
    """One endpoint for a path that both APIs have."""

    async def endpoint(http: Request) -> Response:
        return await (anthropic if speaks_anthropic(http) else openai)(http)

    return endpoint


def failure_body(error: Exception, status: int, message: str, request_id: str) -> FailureBody:
    kind = _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    return FailureBody(Failure(kind, _full(error) if isinstance(error, ContextFull) else message), request_id)


def _full(error: ContextFull) -> str:
    """As Anthropic's clients know it, which then shorten the conversation by the tokens that are too many. It is always
    the prompt: `max_tokens` that do not fit are lowered."""
    num = f"{'' if error.is_counted else 'about '}{error.num_prompt} tokens"
    most = min(error.context_len, error.num_prompt - 1)  # one place of the context is for output
    return f"prompt is too long: {num} > {most} maximum ({error.field}: {error.why})"
