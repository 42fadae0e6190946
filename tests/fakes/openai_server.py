"""A server that answers OpenAI's routes from a function, on a real socket."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from fakes.http_server import serving

Answer = tuple[int, Any]  # status; an object, or a list of events to stream
Respond = Callable[[str, dict[str, Any]], Answer]  # of a path and a body


@contextmanager
def answering_server(respond: Respond) -> Iterator[str]:
    """Its address. GET /v1/models names the model `tiny`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, "application/json", json.dumps({"data": [{"id": "tiny"}]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = respond(self.path, body)
            if isinstance(answer, list):
                lines = [f"data: {json.dumps(event)}\n\n" for event in answer]
                self._send(status, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))
            else:
                self._send(status, "application/json", json.dumps(answer))

        def log_message(self, *_: object) -> None:
            pass

        def _send(self, status: int, kind: str, content: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("X-Request-Id", "r1")
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(content.encode())

    with serving(Handler) as url:
        yield url
