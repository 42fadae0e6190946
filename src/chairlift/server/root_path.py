"""The path that this server has behind a proxy.

Always: a request is served with the path and without it, so that proxies may remove it or leave it.
"""

from starlette.types import ASGIApp, Receive, Scope, Send


def below(root: str | None, app: ASGIApp) -> ASGIApp:
    """The application at `root`, as in /llm, and at /."""
    if root is None:
        return app
    start = root.encode()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == root or path.startswith(root + "/"):
            raw = scope.get("raw_path") or path.encode()
            scope = {**scope, "path": path[len(root) :] or "/", "raw_path": raw.removeprefix(start) or b"/"}
        await app(scope, receive, send)

    return serve
