"""The check of API keys, where there are any: `Authorization: Bearer KEY` or `X-API-Key: KEY`.

Always: a request without a valid key is refused before routing, so it cannot tell which routes exist. The health routes
and the page, which holds no data, are open.
"""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from chairlift.config.keys import ApiKey, ApiKeys

HEALTH = ("/health", "/health/live", "/health/ready", "/health/generate")
_MISSING = "an API key is needed: send it as `Authorization: Bearer KEY`"
_WRONG = "this API key is not known here"


class RequireApiKey:
    def __init__(self, app: ASGIApp, keys: Callable[[], ApiKeys]) -> None:
        """`keys`: those valid now."""
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keys = self._keys()
        if keys and scope["type"] == "http":
            headers = Headers(scope=scope)
            if not _is_open(scope["path"], headers):
                scope["api_key"] = _check(keys, headers)
        await self._app(scope, receive, send)


def key_of(http: Request) -> ApiKey | None:
    """None where no key is needed."""
    key: ApiKey | None = http.scope.get("api_key")
    return key


def _is_open(path: str, headers: Headers) -> bool:
    return path in HEALTH or (path == "/" and "text/html" in headers.get("accept", ""))


def _check(keys: ApiKeys, headers: Headers) -> ApiKey:
    kind, _, sent = headers.get("authorization", "").partition(" ")
    sent = sent.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")
    key = keys.find(sent)
    if key is None:
        raise HTTPException(401, _WRONG if sent else _MISSING, {"WWW-Authenticate": "Bearer"})
    return key
