"""POST /v1/rerank (Jina's, Cohere's and vLLM's form) and POST /v1/score (vLLM's).

A model that scores pairs scores them; one that makes vectors tells how similar they are.
"""

import secrets
import time
from collections.abc import Sequence

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.cost import MAX_INPUTS
from chairlift.server.embedding.exchange import Exchange, begin
from chairlift.server.embedding.objects import Ranked, RankedDocument, Ranking, Score, ScoreList
from chairlift.server.embedding.requests import Document, RerankRequest, ScoreRequest
from chairlift.server.openai.exchange import json_response
from chairlift.text.embedding.vectors import similarities, vectors_of

_SIDES = (("text_1", "text_2"), ("queries", "items"), ("queries", "documents"), ("data_1", "data_2"))


async def rerank(http: Request) -> Response:
    return await _rerank(http, is_cohere=False)


async def rerank_cohere(http: Request) -> Response:
    """Its clients know neither `return_documents` nor a way to have long documents cut: they always are."""
    return await _rerank(http, is_cohere=True)


async def _rerank(http: Request, is_cohere: bool) -> Response:
    exchange, request = await begin(http, RerankRequest, _check, always_cuts=is_cohere)
    query, documents = _text(request.query), [_text(each) for each in request.documents]
    scores = await _scores(exchange, [query], documents, request.instruction, request.max_tokens_per_doc)
    best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    shows = not is_cohere if request.return_documents is None else request.return_documents
    results = [
        Ranked(
            index=index,
            document=RankedDocument(documents[index]) if shows else UNSET,
            relevance_score=scores[index],
        )
        for index in best[: request.top_n]
    ]
    name = f"rerank-{secrets.token_hex(16)}"
    return json_response(Ranking(id=name, model=exchange.model, results=results, usage=exchange.usage))


async def score(http: Request) -> Response:
    exchange, request = await begin(http, ScoreRequest)
    first, second = _sides(request)
    scores = await _scores(exchange, first, second, request.instruction)
    return json_response(
        ScoreList(
            id=f"score-{secrets.token_hex(16)}",
            created=int(time.time()),
            model=exchange.model,
            data=[Score(index=index, score=each) for index, each in enumerate(scores)],
            usage=exchange.usage,
        )
    )


async def _scores(
    exchange: Exchange,
    queries: Sequence[str],
    documents: Sequence[str],
    instruction: str | None,
    most: int | None = None,
) -> list[float]:
    """One query for all documents, or one for each. `most`: tokens of a document."""
    if exchange.config.makes_scores:
        each = list(queries) * (len(documents) // len(queries))
        inputs = await exchange.pairs(each, documents, instruction, most)
        found: list[float] = vectors_of(await exchange.made(inputs, "documents"))[:, 0].tolist()
        return found
    if instruction is not None:
        raise InvalidRequest("instruction", "is for models that score pairs; this one makes vectors")
    texts = exchange.texts
    first = await exchange.singles([texts.as_query(query) for query in queries], "query")
    second = await exchange.singles([texts.as_document(text) for text in documents], "documents", most)
    vectors = vectors_of(await exchange.made([*first, *second], "documents"))
    left, right = vectors[: len(first)], vectors[len(first) :]
    return similarities(left.repeat(len(right) // len(left), axis=0), right, exchange.config.similarity)


def _check(request: RerankRequest) -> None:
    if not request.documents:
        raise InvalidRequest("documents", "must not be empty")
    if not _text(request.query):
        raise InvalidRequest("query", "must not be empty")
    for name in ("top_n", "max_tokens_per_doc"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise InvalidRequest(name, f"must be at least 1, got {value}")
    _check_count("documents", request.documents)


def _check_count(field: str, texts: Sequence[object]) -> None:
    if len(texts) >= MAX_INPUTS:  # the query may be an input too
        raise InvalidRequest(field, f"must hold fewer than {MAX_INPUTS} texts, got {len(texts)}")


def _sides(request: ScoreRequest) -> tuple[list[str], list[str]]:
    given = [names for names in _SIDES if all(getattr(request, name) is not None for name in names)]
    if len(given) != 1:
        raise InvalidRequest("text_1", "give text_1 and text_2, or queries and items, or queries and documents")
    first, second = (_listed(getattr(request, name), name) for name in given[0])
    if len(first) not in (1, len(second)):
        raise InvalidRequest(given[0][0], f"must be one text, or {len(second)} as {given[0][1]} has, got {len(first)}")
    return first, second


def _listed(given: str | list[str], name: str) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not texts:
        raise InvalidRequest(name, "must not be empty")
    _check_count(name, texts)
    return texts


def _text(given: str | Document) -> str:
    return given if isinstance(given, str) else given.text
