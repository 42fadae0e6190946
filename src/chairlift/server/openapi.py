"""GET /openapi.json: every route, described from the same types that read and write its bodies."""

from functools import lru_cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.config.options.reload import CHANGEABLE
from chairlift.config.settings import Settings
from chairlift.server.admission.gate import DEADLINE_HEADER
from chairlift.server.context import context_of
from chairlift.server.operations import GROUPS, Operation
from chairlift.server.request_log.record import HEADER
from chairlift.server.sockets.guard import MAX_HEAD_BYTES, MAX_HEADERS

_REF = "#/components/schemas/{name}"
_KEY = {"type": "http", "scheme": "bearer", "description": "One of the server's API keys, where it has any"}
_NAME: dict[str, Any] = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_DEADLINE: dict[str, Any] = {
    "name": DEADLINE_HEADER,
    "in": "header",
    "required": False,
    "description": "Time limit of the request in milliseconds; see also the field timeout (seconds)",
    "schema": {"type": "integer", "minimum": 1},
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds after which to try again", "schema": {"type": "integer"}}}
_IGNORED = {HEADER: {"description": "Fields of the body that had no effect", "schema": {"type": "string"}}}
_REJECTED: dict[str, dict[str, Any]] = {
    "429": {
        "description": "Too many requests wait (max_waiting, max_waiting_tokens), or the API key's limit is reached",
        "headers": _RETRY_AFTER,
    },
    "503": {"description": "The server is starting or stopping", "headers": _RETRY_AFTER},
    "504": {"description": "The request timed out before its answer began"},
}


async def openapi(http: Request) -> Response:
    context = context_of(http)
    return Response(document(context.version, context.settings), media_type="application/json")


@lru_cache(maxsize=1)
def document(version: str, settings: Settings) -> bytes:
    """The OpenAPI document of a server with these settings, as JSON."""
    operations = [operation for group in GROUPS.values() for operation in group]
    found = [kind for operation in operations for kind in (operation.body, operation.answer, operation.error)]
    kinds = [kind for kind in dict.fromkeys(found) if kind is not None]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for tag, group in GROUPS.items():
        for operation in group:
            paths.setdefault(operation.path, {})[operation.method] = {"tags": [tag]} | _described(operation)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "chairlift", "version": version, "x-limits": _limits(settings)},
            "tags": [{"name": tag} for tag in GROUPS],
            "security": [{}, {"key": []}],
            "paths": paths,
            "components": {"schemas": schemas, "securitySchemes": {"key": _KEY}},
        }
    )


def _described(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.media is not None:
        content[operation.media] = {} if operation.answer is None else _schema(operation.answer)
    if operation.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    error = {"content": {"application/json": _schema(operation.error)}}
    answers: dict[str, Any] = {
        "200": {"description": "The answer"} | ({"content": content} if content else {}),
        "default": {"description": "What went wrong"} | error,
    }
    if operation.path.startswith("/health"):
        answers["503"] = answers["200"] | {"description": "Why not"}
    if operation.generates:
        answers |= {status: reason | error for status, reason in _REJECTED.items()}
    described: dict[str, Any] = {"operationId": operation.id, "summary": operation.summary, "responses": answers}
    parameters = [_NAME] if "{name}" in operation.path else []
    if operation.body is not None:
        answers["200"]["headers"] = _IGNORED
        body = _schema(operation.body) | {"example": operation.example}
        described["requestBody"] = {"required": True, "content": {"application/json": body}}
    if operation.generates:
        parameters.append(_DEADLINE)
    return described | ({"parameters": parameters} if parameters else {})


def _limits(settings: Settings) -> dict[str, Any]:
    """The limits on requests now in force; null: no limit."""
    return {name: getattr(settings, name) for name in CHANGEABLE if name != "log_level"} | {
        "max_head_bytes": MAX_HEAD_BYTES,
        "max_headers": MAX_HEADERS,
    }


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(name=kind.__name__)}}
