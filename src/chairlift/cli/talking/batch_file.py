"""The files of OpenAI's batch API, a JSON object a line.

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
    {"id": "batch_req_...", "custom_id": "a", "response": {"status_code": 200, "request_id": ..., "body": {...}}, "error": null}

Always: every line in has one line out, a bad one too. An existing file of answers is only ever appended to.
"""  # noqa: E501

import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig

_START = "/v1/"


@dataclass(frozen=True, slots=True)
class BatchRequest:
    custom_id: str | None  # None: the line has none that can be read
    path: str = ""
    body: dict[str, Any] | None = None
    problem: str = ""  # with the line; empty: it can be sent


def read_requests(path: Path) -> list[BatchRequest]:
    seen: set[str] = set()
    found: list[BatchRequest] = []
    for number, line in _lines(path):
        request = _request(number, line, seen)
        found.append(request)
        if request.custom_id is not None:
            seen.add(request.custom_id)
    if not found:
        raise InvalidConfig(f"{path}: there are no requests in it")
    return found


def answered(path: Path) -> set[str]:
    """The ids that a file of answers has a good answer for."""
    found: set[str] = set()
    for number, line in _lines(path):
        try:
            value = json.loads(line)
            if value["response"] is not None and value["response"]["status_code"] == 200:
                found.add(value["custom_id"])
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidConfig(f"{path}: line {number} is no answer of a batch; name another file") from error
    return found


def answer_line(request: BatchRequest, status: int, request_id: str, body: Any) -> str:
    response = {"status_code": status, "request_id": request_id, "body": body}
    return _line(request, response, None)


def problem_line(request: BatchRequest, code: str, message: str) -> str:
    return _line(request, None, {"code": code, "message": message})


def _line(request: BatchRequest, response: object, error: object) -> str:
    id = f"batch_req_{secrets.token_hex(12)}"
    values = {"id": id, "custom_id": request.custom_id, "response": response, "error": error}
    return json.dumps(values, ensure_ascii=False) + "\n"


def _request(number: int, line: str, seen: Iterable[str]) -> BatchRequest:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return BatchRequest(None, problem=f"line {number}: is not JSON")
    id = value.get("custom_id") if isinstance(value, dict) else None
    if not isinstance(id, str) or not id:
        return BatchRequest(None, problem=f"line {number}: custom_id must be text")
    path, body = value.get("url"), value.get("body")
    problem = ""
    if id in seen:
        problem = "custom_id is that of an earlier line; each must have its own"
    elif value.get("method", "POST") != "POST":
        problem = "method must be POST"
    elif not isinstance(path, str) or not path.startswith(_START):
        problem = "url must be a route such as /v1/chat/completions"
    elif not isinstance(body, dict):
        problem = "body must be an object"
    elif body.get("stream"):
        problem = "body.stream: a batch has whole answers; leave it out"
    if problem:
        return BatchRequest(id, problem=f"line {number}: {problem}")
    return BatchRequest(id, path, body)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
