"""Requests from pages of other sites. CORS lets the named ones read responses; but any page can post to a server on its
user's machine, and with DNS rebinding read as well.

Always: a server on loopback without keys answers only to loopback names and to its own page, besides those named.
"""

import ipaddress

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope

from chairlift.server.admission.api_keys import HEALTH
from chairlift.server.request_log.record import HEADER

_SHOWN = ("X-Request-Id", "Retry-After", HEADER)
_WAYS_OUT = "name it with --allowed-host, or set API keys"


def allow_origins(app: ASGIApp, origins: str | None) -> ASGIApp:
    """`origins`: the option's value."""
    if origins is None:
        return app
    return CORSMiddleware(
        app, allow_origins=names_of(origins), allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=_SHOWN
    )


def names_of(option: str | None) -> list[str]:
    return [name.strip() for name in option.split(",")] if option else []


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_origin(scope: Scope, hosts: list[str], origins: list[str]) -> None:
    """For a server on loopback without keys; `hosts` and `origins` are exceptions. Raises `HTTPException`."""
    if scope["path"] in HEALTH:
        return
    headers = Headers(scope=scope)
    host, origin = headers.get("host", ""), headers.get("origin")
    name = (host[1:].partition("]") if host.startswith("[") else host.partition(":"))[0].lower()
    if name and not is_loopback(name) and name not in (allowed.lower() for allowed in hosts):
        raise HTTPException(403, f"this server is for this machine, not for {host[:80]!r}; {_WAYS_OUT}")
    if origin is None or origin in origins or "*" in origins:
        return
    if origin.partition("://")[2].lower() != host.lower():
        raise HTTPException(403, f"pages of {origin[:80]!r} may not use this server; name it with --cors-origin")
