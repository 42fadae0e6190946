from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from chairlift.server.app import below


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/llm/v1/models", ("/v1/models", b"/v1/models")),
        ("/v1/models", ("/v1/models", b"/v1/models")),
        ("/llm", ("/", b"/")),
        ("/llmx/v1", ("/llmx/v1", b"/llmx/v1")),
    ],
)
async def test_requests_are_served_with_and_without_the_path(path: str, seen: tuple[str, bytes]) -> None:
    found: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append((scope["path"], scope["raw_path"]))

    served: Any = below("/llm", app)
    await served({"type": "http", "path": path, "raw_path": path.encode()}, None, None)
    assert found == [seen]
    assert below(None, app) is app
