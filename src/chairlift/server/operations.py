"""The table of all operations, by group: what each route reads and writes, for the OpenAPI document and its page.

Always: an operation's id is unique and stays, since generated clients name their functions by it.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from chairlift.server.anthropic.dialect import FailureBody
from chairlift.server.anthropic.objects import AssistantMessage, TokenCount
from chairlift.server.anthropic.request import CountTokensRequest, MessagesRequest
from chairlift.server.embedding.objects import EmbeddingList, Ranking, ScoreList
from chairlift.server.embedding.requests import EmbeddingRequest, RerankRequest, ScoreRequest
from chairlift.server.errors import Detail, ErrorBody
from chairlift.server.health import Health
from chairlift.server.llm_serving.request import GenerateRequest
from chairlift.server.openai import objects, requests
from chairlift.server.openai.responses.request import ResponseRequest
from chairlift.server.openai.responses.response import ResponseObject


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    id: str
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    streams: bool = False
    media: str | None = "application/json"  # None: the response does not say, or has no body
    error: type[msgspec.Struct] = ErrorBody
    is_queued: bool = False
    example: Any = None  # of a body

    @property
    def generates(self) -> bool:
        return self.method == "post" and (self.streams or self.is_queued or self.path.startswith("/models/"))


_QUESTION = [{"role": "user", "content": "What are the Alps?"}]
_OPENAI = (
    Operation(
        "post", "/v1/chat/completions", "createChatCompletion", "Answer a chat",
        requests.ChatRequest, objects.ChatCompletion, True, example={"messages": _QUESTION, "max_tokens": 64},
    ),
    Operation(
        "post", "/v1/completions", "createCompletion", "Continue text",
        requests.CompletionRequest, objects.Completion, True, example={"prompt": "The Alps are", "max_tokens": 32},
    ),
    Operation(
        "post", "/v1/responses", "createResponse", "Respond to input, without state",
        ResponseRequest, ResponseObject, True, example={"input": "What are the Alps?", "max_output_tokens": 64},
    ),
    Operation("get", "/v1/models", "listModels", "The served models", None, objects.ModelList),
    Operation("get", "/v1/models/{name}", "getModel", "One served model", None, objects.ModelCard),
    Operation(
        "post", "/tokenize", "tokenize", "Text or messages to token ids",
        requests.TokenizeRequest, objects.Tokens, example={"prompt": "What are the Alps?"},
    ),
    Operation(
        "post", "/detokenize", "detokenize", "Token ids to text",
        requests.DetokenizeRequest, objects.Text, example={"tokens": [1, 2, 3]},
    ),
    Operation("get", "/tokenizer_info", "getTokenizer", "The tokenizer's own tokens", None, objects.TokenizerInfo),
)  # fmt: skip
_ANTHROPIC = (
    Operation(
        "post", "/v1/messages", "createMessage", "Answer a chat",
        MessagesRequest, AssistantMessage, True, error=FailureBody, example={"messages": _QUESTION, "max_tokens": 64},
    ),
    Operation(
        "post", "/v1/messages/count_tokens", "countMessageTokens", "Count a prompt's tokens",
        CountTokensRequest, TokenCount, error=FailureBody, example={"messages": _QUESTION},
    ),
)  # fmt: skip
_ALPS = {"query": "What are the Alps?", "documents": ["Mountains.", "A kind of pasta."]}
_EMBEDDING = (
    Operation(
        "post", "/v1/embeddings", "createEmbedding", "Vectors of texts",
        EmbeddingRequest, EmbeddingList, is_queued=True, example={"input": ["What are the Alps?", "A mountain range."]},
    ),
    *(
        Operation(
            "post", path, id, "Documents by relevance to a query",
            RerankRequest, Ranking, is_queued=True, example=_ALPS,
        )
        for path, id in (("/v1/rerank", "rerank"), ("/rerank", "rerankUnversioned"), ("/v2/rerank", "rerankCohere"))
    ),
    *(
        Operation(
            "post", path, id, "Scores of pairs of texts", ScoreRequest, ScoreList, is_queued=True,
            example={"text_1": "What are the Alps?", "text_2": ["Mountains.", "A kind of pasta."]},
        )
        for path, id in (("/v1/score", "score"), ("/score", "scoreUnversioned"))
    ),
)  # fmt: skip
# Whole answers, and lines when return_protocol is not "sse", have no media type, as clients know them.
_LLM_SERVING = tuple(
    Operation(
        "post", f"/models/{{name}}{end}", id, summary, GenerateRequest, media=None, error=Detail,
        example={"inputs": "What are the Alps?", "parameters": {"max_new_tokens": 32}},
    )
    for end, id, summary in (
        ("", "generate", "Full or streamed, by the field stream"),
        ("/generate", "generateFull", "The full answer, as a JSON line"),
        ("/generate_stream", "generateStream", "One JSON line per token"),
    )
) + tuple(
    Operation("get", f"/serving/{name}", id, summary, media="text/event-stream", error=Detail)
    for name, id, summary in (
        ("get_bs", "getBatchSlots", "Batch slots"),
        ("get_request_numbers", "getNumWaiting", "Waiting requests"),
        ("get_serverd_model_info", "getModelInfo", "The served model"),
    )
)  # fmt: skip
_SERVER = (
    Operation("get", "/", "getWelcome", "Where to go from here; for browsers, the live page", None, objects.Welcome),
    Operation("get", "/docs", "getDocs", "This document as a page", media="text/html"),
    Operation("get", "/openapi.json", "getOpenapi", "This document"),
    Operation("get", "/live", "watchEngine", "What the engine does, as the page shows it", media="text/event-stream"),
    Operation("get", "/live/requests/{name}", "explainRequest", "Where the time of a recent request went"),
    Operation("get", "/metrics", "getMetrics", "What the server counts, for Prometheus", media="text/plain"),
    Operation("get", "/health", "getHealth", "200 when the engine is ready, else 503", media=None),
    Operation("get", "/health/live", "getLiveness", "200 when the process answers", None, Health),
    Operation(
        "get", "/health/ready", "getReadiness", "200 when the engine is ready and the server is not stopping",
        None, Health,
    ),
    Operation(
        "get", "/health/generate", "getGeneration", "200 when a token was made in the last 5 s, or is within 10 s",
        None, Health,
    ),
    Operation("get", "/version", "getVersion", "The server's version", None, objects.Version),
)  # fmt: skip
_SHORT = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", "/v1/embeddings")
_UNVERSIONED = tuple(
    replace(each, path=each.path.removeprefix("/v1"), id=f"{each.id}Unversioned")
    for each in (*_OPENAI, *_EMBEDDING)
    if each.path in _SHORT
)  # as llama-server has them
GROUPS: dict[str, tuple[Operation, ...]] = {
    "OpenAI": _OPENAI + _UNVERSIONED,
    "Anthropic": _ANTHROPIC,
    "Embeddings and scores": _EMBEDDING,
    "llm-serving": _LLM_SERVING,
    "Server": _SERVER,
}
