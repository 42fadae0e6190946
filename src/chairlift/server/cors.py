"""Pages of other sites: a browser lets them call this server only where it says so, which it does for those named."""

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from chairlift.server.ignored import HEADER

_SHOWN = ("X-Request-Id", "Retry-After", HEADER)


def allow_sites(app: ASGIApp, origins: str | None) -> ASGIApp:
    """`origins` as the option has them; None: the application as it is."""
    if origins is None:
        return app
    names = [name.strip() for name in origins.split(",")]
    return CORSMiddleware(
        app, allow_origins=names, allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=_SHOWN
    )
