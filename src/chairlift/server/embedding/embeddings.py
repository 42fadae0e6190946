"""POST /v1/embeddings: OpenAI's."""

import secrets
import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.cost import MAX_INPUTS, check_count
from chairlift.server.embedding.exchange import Exchange, begin
from chairlift.server.embedding.objects import EmbeddingList, EmbeddingObject
from chairlift.server.embedding.requests import EmbeddingRequest, normalizes
from chairlift.server.openai.exchange import json_response
from chairlift.text.embedding.texts import Framed
from chairlift.text.embedding.vectors import base64_of, check_dimensions, vectors_of

_FORMATS = ("float", "base64")
_FORMS = "must be a text, a list of texts, token ids or a list of token-id lists"


async def embeddings(http: Request) -> Response:
    exchange, request = await begin(http, EmbeddingRequest, _check)
    if exchange.config.makes_scores:
        raise InvalidRequest("model", f"{exchange.model} scores pairs and makes no vectors; use /v1/rerank")
    check_dimensions(request.dimensions, exchange.config.dimensions)
    made = await exchange.made(await _inputs(exchange, request), "input")
    vectors = vectors_of(made, request.dimensions, normalizes(request))
    shown: Sequence[Any] = vectors.tolist()
    if request.encoding_format == "base64":
        shown = [base64_of(row, request.endianness) for row in vectors]
    data = [EmbeddingObject(index=index, embedding=each) for index, each in enumerate(shown)]
    name, now = f"embd-{secrets.token_hex(16)}", int(time.time())
    return json_response(EmbeddingList(id=name, created=now, data=data, model=exchange.model, usage=exchange.usage))


def _check(request: EmbeddingRequest) -> None:
    given = request.encoding_format
    if given is not None and given not in _FORMATS:
        raise InvalidRequest("encoding_format", f"must be {' or '.join(_FORMATS)}, got {given[:40]!r}")


async def _inputs(exchange: Exchange, request: EmbeddingRequest) -> list[Framed]:
    given = request.input
    items: Sequence[Any] = [given] if isinstance(given, str) else given
    if items and all(isinstance(item, int) for item in items):
        items = [items]
    if not items or not all(items):
        raise InvalidRequest("input", "must not be empty")
    check_count("input", "inputs", len(items), MAX_INPUTS)
    if len({type(item) for item in items}) > 1 or isinstance(items[0], int):
        raise InvalidRequest("input", _FORMS)
    if isinstance(items[0], str):
        texts = [exchange.texts.prompted(text, request.prompt_name) for text in items]
        return await exchange.singles(texts, "input")
    if request.prompt_name is not None:
        raise InvalidRequest("prompt_name", "is put before texts; these are token ids")
    return [exchange.framed(list(item), "input") for item in items]
