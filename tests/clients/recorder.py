"""A recorder between a client and a server: it passes requests on and notes each with its answer.

`change`, where it is set, writes a body anew before it is passed on; noted is what the client sent. It can be the
client's HTTP proxy as well: requests to other hosts are noted by name and refused.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from fakes.http_server import serving

_TIMEOUT_S = 120.0
_COUNTS = ("prompt_tokens", "input_tokens", "cache_read_input_tokens")


@dataclass(frozen=True, slots=True)
class Seen:
    path: str
    body: dict[str, Any]
    status: int
    is_streamed: bool
    answer: str

    @property
    def num_tokens(self) -> int:
        """Prompt tokens as the answer counts them; on /v1/messages those of the prefix cache are counted apart."""
        counts = dict(re.findall(rf'"({"|".join(_COUNTS)})": ?(\d+)', self.answer))
        return sum(map(int, counts.values()))

    @property
    def says(self) -> str:
        tools = len(self.body.get("tools", []))
        outcome = f"{self.num_tokens:,} prompt tokens" if self.status == 200 else self.answer[:300]
        return f"{self.status} {self.path}{', streamed' * self.is_streamed}, {tools} tools: {outcome}"

    def asks_for(self, word: str) -> bool:
        """Whether the word is in the last message."""
        return word in json.dumps((self.body.get("messages") or self.body.get("input") or [""])[-1])


@dataclass(slots=True)
class Recording:
    url: str
    requests: list[Seen]
    outside: list[str]  # of other hosts, each refused
    change: Callable[[dict[str, Any]], dict[str, Any]] | None = None


@contextmanager
def recording(server: str) -> Iterator[Recording]:
    recorded = Recording("", [], [])

    class Recorder(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if not self.path.startswith("/"):
                self.do_CONNECT()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            upstream = HTTPConnection(urlsplit(server).netloc, timeout=_TIMEOUT_S)
            asked = json.loads(body) if body else {}
            if recorded.change is not None and asked:
                body = json.dumps(recorded.change(asked)).encode()
            upstream.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = upstream.getresponse()
            kind = answer.headers.get_content_type()
            self.send_response(answer.status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            text = self._pass_on(answer)
            path = urlsplit(self.path).path
            recorded.requests.append(Seen(path, asked, answer.status, kind == "text/event-stream", text))
            upstream.close()

        def do_CONNECT(self) -> None:
            recorded.outside.append(self.path)
            self.send_error(403)

        do_GET = do_HEAD = do_POST

        def _pass_on(self, answer: HTTPResponse) -> str:
            text = b""
            while piece := answer.read1():
                text += piece
                self.wfile.write(piece)
            return text.decode(errors="replace")

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Recorder) as url:
        recorded.url = url
        yield recorded
