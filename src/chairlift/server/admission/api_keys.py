"""The check of API keys, where there are any: `Authorization: Bearer KEY` or `X-API-Key: KEY`.

Always: a request without a valid key is refused before routing, so it cannot tell which routes exist. The health routes
and the pages, which hold no data, are open. A request shares cached prefixes within its key, or within its key's group,
unless all share.
"""

from hashlib import blake2b

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Scope

from chairlift.config.keys import ApiKey, ApiKeys

HEALTH = ("/health", "/health/live", "/health/ready", "/health/generate")
PAGES = ("/", "/docs")  # for browsers
_MISSING = "an API key is needed: send it as `Authorization: Bearer KEY`"
_WRONG = "this API key is not known here"


def check_key(scope: Scope, keys: ApiKeys) -> None:
    """Raises `HTTPException`."""
    headers = Headers(scope=scope)
    is_page = scope["path"] in PAGES and "text/html" in headers.get("accept", "")
    is_open = is_page or scope["path"] in HEALTH
    if not keys or is_open:
        return
    sent = sent_key(headers)
    scope["api_key"] = keys.find(sent)
    if scope["api_key"] is None:
        raise HTTPException(401, _WRONG if sent else _MISSING, {"WWW-Authenticate": "Bearer"})


def sent_key(headers: Headers) -> str:
    kind, _, sent = headers.get("authorization", "").partition(" ")
    return sent.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")


def key_of(http: Request) -> ApiKey | None:
    """None where no key is needed."""
    key: ApiKey | None = http.scope.get("api_key")
    return key


def payers_of(http: Request) -> list[ApiKey]:
    """The key whose allowance a request is taken from, where it has one."""
    key = key_of(http)
    return [] if key is None else [key]


def salt_of(key: ApiKey, own: str, share: str) -> str:
    """The cache salt of a request, which separates cached prefixes. `own`: the client's `cache_salt`. `share`: the
    setting `share_prefixes`.

    A client's own separates further and reaches no other key: the parts of a salt are digests of equal length, so no
    client can write another key's. A key's part is a digest of its digest, the same after every reload.
    """
    if share == "all":
        return own
    client = _digest(own.encode(errors="surrogatepass"))
    if key.cache_group is not None:
        return f"group {_digest(key.cache_group.encode())} {client}"
    return f"key {_digest(key.digest)} {client}"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16, person=b"cached prefixes").hexdigest()
