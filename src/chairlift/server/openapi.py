"""GET /openapi.json: every route, described from the same types that read and write its bodies."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.context import context_of
from chairlift.server.errors import ErrorBody
from chairlift.server.llm_serving.request import GenerateRequest
from chairlift.server.openai import requests, responses

_REF = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    streams: bool = False
    media: str = "application/json"
    fails: bool = True  # with an error in OpenAI's shape


_OPENAI = (
    Operation("get", "/", "Where to go from here", None, responses.Welcome),
    Operation("post", "/v1/completions", "Continue text", requests.CompletionRequest, responses.Completion, True),
    Operation("post", "/v1/chat/completions", "Answer a chat", requests.ChatRequest, responses.ChatCompletion, True),
    Operation("get", "/v1/models", "The served models", None, responses.ModelList),
    Operation("get", "/v1/models/{name}", "One served model", None, responses.ModelCard),
    Operation("post", "/tokenize", "Text or messages to token ids", requests.TokenizeRequest, responses.Tokens),
    Operation("post", "/detokenize", "Token ids to text", requests.DetokenizeRequest, responses.Text),
    Operation("get", "/health", "200 when the engine is ready, else 503"),
    Operation("get", "/version", "The server's version", None, responses.Version),
    Operation("get", "/openapi.json", "This document"),
)
_LLM_SERVING = tuple(
    Operation("post", f"/models/{{name}}{end}", summary, GenerateRequest, None, media=media, fails=False)
    for end, summary, media in (
        ("", "llm-serving: full or streamed, by the field stream", "text/event-stream"),
        ("/generate", "llm-serving: the full answer", "application/json"),
        ("/generate_stream", "llm-serving: one JSON line per token", "text/event-stream"),
    )
) + tuple(
    Operation("get", f"/serving/{name}", f"llm-serving: {summary}", media="text/event-stream", fails=False)
    for name, summary in (
        ("get_bs", "batch slots"),
        ("get_request_numbers", "waiting requests"),
        ("get_serverd_model_info", "the served model"),
    )
)


async def openapi(http: Request) -> Response:
    return Response(_document(context_of(http).version), media_type="application/json")


@lru_cache(maxsize=1)
def _document(version: str) -> bytes:
    operations = _OPENAI + _LLM_SERVING
    kinds = [kind for operation in operations for kind in (operation.body, operation.answer) if kind is not None]
    kinds = list(dict.fromkeys([*kinds, ErrorBody]))
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "chairlift", "version": version},
            "paths": paths,
            "components": {"schemas": schemas},
        }
    )


def _described(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {operation.media: {} if operation.answer is None else _schema(operation.answer)}
    if operation.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {"200": {"description": "The answer", "content": content}},
    }
    if operation.fails:
        described["responses"]["default"] = {
            "description": "What went wrong",
            "content": {"application/json": _schema(ErrorBody)},
        }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": _schema(operation.body)}}
    if "{name}" in operation.path:
        parameter = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        described["parameters"] = [parameter]
    return described


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(name=kind.__name__)}}
