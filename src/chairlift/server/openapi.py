"""GET /openapi.json: every route, described from the same types that read and write its bodies."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.config.options.reload import CHANGEABLE
from chairlift.config.settings import Settings
from chairlift.server.admission.gate import DEADLINE_HEADER
from chairlift.server.anthropic.dialect import FailureBody
from chairlift.server.anthropic.objects import AssistantMessage, TokenCount
from chairlift.server.anthropic.request import CountTokensRequest, MessagesRequest
from chairlift.server.context import context_of
from chairlift.server.embedding.objects import EmbeddingList, Ranking, ScoreList
from chairlift.server.embedding.requests import EmbeddingRequest, RerankRequest, ScoreRequest
from chairlift.server.errors import Detail, ErrorBody
from chairlift.server.health import Health
from chairlift.server.llm_serving.request import GenerateRequest
from chairlift.server.openai import objects, requests
from chairlift.server.openai.responses.request import ResponseRequest
from chairlift.server.openai.responses.response import ResponseObject
from chairlift.server.request_log.ignored import HEADER
from chairlift.server.sockets.guard import MAX_HEAD_BYTES, MAX_HEADERS

_REF = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    streams: bool = False
    media: str | None = "application/json"  # None: the response does not say, or has no body
    error: type[msgspec.Struct] = ErrorBody
    is_queued: bool = False

    @property
    def generates(self) -> bool:
        return self.method == "post" and (self.streams or self.is_queued or self.path.startswith("/models/"))


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
_OPENAI = (
    Operation("get", "/", "Where to go from here; for browsers, the live page", None, objects.Welcome),
    Operation("get", "/live", "What the engine does, as the page shows it", media="text/event-stream"),
    Operation("get", "/live/requests/{name}", "Where the time of a recent request went"),
    Operation("post", "/v1/completions", "Continue text", requests.CompletionRequest, objects.Completion, True),
    Operation("post", "/v1/chat/completions", "Answer a chat", requests.ChatRequest, objects.ChatCompletion, True),
    Operation("post", "/v1/responses", "Respond to input, without state", ResponseRequest, ResponseObject, True),
    Operation("get", "/v1/models", "The served models", None, objects.ModelList),
    Operation("get", "/v1/models/{name}", "One served model", None, objects.ModelCard),
    Operation("post", "/tokenize", "Text or messages to token ids", requests.TokenizeRequest, objects.Tokens),
    Operation("post", "/detokenize", "Token ids to text", requests.DetokenizeRequest, objects.Text),
    Operation("get", "/health", "200 when the engine is ready, else 503", media=None),
    Operation("get", "/health/live", "200 when the process answers", None, Health),
    Operation("get", "/health/ready", "200 when the engine is ready and the server is not stopping", None, Health),
    Operation("get", "/health/generate", "200 when a token was made in the last 5 s, or is within 10 s", None, Health),
    Operation("get", "/version", "The server's version", None, objects.Version),
    Operation("get", "/openapi.json", "This document"),
    Operation("get", "/metrics", "What the server counts, for Prometheus", media="text/plain"),
)
_EMBEDDING = (
    Operation("post", "/v1/embeddings", "Vectors of texts", EmbeddingRequest, EmbeddingList, is_queued=True),
    *(
        Operation("post", path, "Documents by relevance to a query", RerankRequest, Ranking, is_queued=True)
        for path in ("/v1/rerank", "/rerank", "/v2/rerank")
    ),
    *(
        Operation("post", path, "Scores of pairs of texts", ScoreRequest, ScoreList, is_queued=True)
        for path in ("/v1/score", "/score")
    ),
)
_ANTHROPIC = (
    Operation("post", "/v1/messages", "Answer a chat", MessagesRequest, AssistantMessage, True, error=FailureBody),
    Operation(
        "post",
        "/v1/messages/count_tokens",
        "Count a prompt's tokens",
        CountTokensRequest,
        TokenCount,
        error=FailureBody,
    ),
)
# Whole answers, and lines when return_protocol is not "sse", have no media type, as clients know them.
_LLM_SERVING = tuple(
    Operation("post", f"/models/{{name}}{end}", f"llm-serving: {summary}", GenerateRequest, media=None, error=Detail)
    for end, summary in (
        ("", "full or streamed, by the field stream"),
        ("/generate", "the full answer, as a JSON line"),
        ("/generate_stream", "one JSON line per token"),
    )
) + tuple(
    Operation("get", f"/serving/{name}", f"llm-serving: {summary}", media="text/event-stream", error=Detail)
    for name, summary in (
        ("get_bs", "batch slots"),
        ("get_request_numbers", "waiting requests"),
        ("get_serverd_model_info", "the served model"),
    )
)


async def openapi(http: Request) -> Response:
    context = context_of(http)
    return Response(document(context.version, context.settings), media_type="application/json")


@lru_cache(maxsize=1)
def document(version: str, settings: Settings) -> bytes:
    """The OpenAPI document of a server with these settings, as JSON."""
    operations = _OPENAI + _EMBEDDING + _ANTHROPIC + _LLM_SERVING
    found = [kind for operation in operations for kind in (operation.body, operation.answer, operation.error)]
    kinds = [kind for kind in dict.fromkeys(found) if kind is not None]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "chairlift", "version": version, "x-limits": _limits(settings)},
            "paths": paths,
            "components": {"schemas": schemas},
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
    described: dict[str, Any] = {"summary": operation.summary, "responses": answers}
    parameters = [_NAME] if "{name}" in operation.path else []
    if operation.body is not None:
        answers["200"]["headers"] = _IGNORED
        described["requestBody"] = {"required": True, "content": {"application/json": _schema(operation.body)}}
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
