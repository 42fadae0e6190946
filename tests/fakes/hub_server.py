"""A Hugging Face hub on this machine: repositories of small files, by the routes that a download uses."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from fakes.http_server import serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Repos = Mapping[str, Mapping[str, bytes]]  # name: file: content


@contextmanager
def served_hub(repos: Repos) -> Iterator[str]:
    """Its address, for HF_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(False)

        def do_GET(self) -> None:
            self._answer(True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, has_body: bool) -> None:
            status, content, headers = _find(repos, self.path.partition("?")[0])
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if has_body:
                self.wfile.write(content)

    with serving(Handler) as url:
        yield url


def _find(repos: Repos, path: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers."""
    parts = path.strip("/").split("/")
    is_api = parts[:2] == ["api", "models"]
    name = "/".join(parts[2:4] if is_api else parts[:2])
    if name not in repos:
        return 404, b"", {"X-Error-Code": "RepoNotFound"}
    if is_api and parts[4:5] == ["tree"]:
        tree = [
            {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for file, content in repos[name].items()
        ]
        return 200, json.dumps(tree).encode(), {"Content-Type": "application/json"}
    if is_api:
        siblings = [{"rfilename": file} for file in repos[name]]
        facts = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
        return 200, json.dumps(facts).encode(), {"Content-Type": "application/json"}
    content = repos[name].get("/".join(parts[4:]))
    if content is None:
        return 404, b"", {"X-Error-Code": "EntryNotFound"}
    return 200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
