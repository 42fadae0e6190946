"""The application: all routes and the layers around them."""

from starlette.applications import Starlette
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from chairlift.server import health
from chairlift.server.admission.access import is_local
from chairlift.server.admission.api_keys import check_key
from chairlift.server.admission.origins import allow_origins, check_origin, names_of
from chairlift.server.anthropic import messages as anthropic
from chairlift.server.anthropic.dialect import by_dialect
from chairlift.server.context import ServerContext
from chairlift.server.embedding.embeddings import embeddings
from chairlift.server.embedding.scores import rerank, rerank_cohere, score
from chairlift.server.llm_serving import generate, status
from chairlift.server.openai import models
from chairlift.server.openai.chat import chat_completions
from chairlift.server.openai.completions import completions
from chairlift.server.openai.responses.route import responses
from chairlift.server.openapi import openapi
from chairlift.server.page import routes as page
from chairlift.server.page.about import replicas, totals
from chairlift.server.page.feeds import Feeds
from chairlift.server.request_log.envelope import Envelope
from chairlift.server.scrape import Scrape, metrics

_MODELS = by_dialect(models.models, anthropic.models)
_ROUTES = (
    Route("/", page.root),
    Route("/docs", page.docs),
    Route("/live", page.live),
    Route("/live/requests/{name}", page.explain),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/responses", responses, methods=["POST"]),
    Route("/v1/messages", anthropic.messages, methods=["POST"]),
    Route("/v1/messages/count_tokens", anthropic.count_tokens, methods=["POST"]),
    Route("/v1/embeddings", embeddings, methods=["POST"]),
    Route("/v1/rerank", rerank, methods=["POST"]),
    Route("/rerank", rerank, methods=["POST"]),
    Route("/v2/rerank", rerank_cohere, methods=["POST"]),
    Route("/v1/score", score, methods=["POST"]),
    Route("/score", score, methods=["POST"]),
    Route("/v1/models", _MODELS),
    Route("/v1/models/{name:path}", by_dialect(models.model, anthropic.model)),
    # Without a version, as llama-server has them.
    Route("/completions", completions, methods=["POST"]),
    Route("/chat/completions", chat_completions, methods=["POST"]),
    Route("/responses", responses, methods=["POST"]),
    Route("/embeddings", embeddings, methods=["POST"]),
    Route("/models", _MODELS),
    Route("/tokenize", models.tokenize, methods=["POST"]),
    Route("/detokenize", models.detokenize, methods=["POST"]),
    Route("/tokenizer_info", models.tokenizer_info),
    Route("/health", health.health),
    Route("/health/live", health.live),
    Route("/health/ready", health.ready),
    Route("/health/generate", health.generate),
    Route("/version", models.version),
    Route("/openapi.json", openapi),
    Route("/metrics", metrics),
    # A model's name may hold slashes, so the longer paths are tried first.
    Route("/models/{name:path}/generate", generate.full, methods=["POST"]),
    Route("/models/{name:path}/generate_stream", generate.streamed, methods=["POST"]),
    Route("/models/{name:path}", generate.by_stream_field, methods=["POST"]),
    Route("/serving/get_bs", status.batch_slots),
    Route("/serving/get_request_numbers", status.num_waiting),
    Route("/serving/get_serverd_model_info", status.model_info),
)

# Of these requests records are kept.
_ASK_ENGINES = (
    completions, chat_completions, responses, anthropic.messages, generate.full, generate.streamed,
    generate.by_stream_field, embeddings, rerank, rerank_cohere, score,
)  # fmt: skip
_NAMES = {route.endpoint: (route.path_format, route.endpoint in _ASK_ENGINES) for route in reversed(_ROUTES)}


def route_of(scope: Scope) -> tuple[str, bool]:
    """The route of a request, "other" for unknown paths, and whether it asks an engine."""
    endpoint = scope.get("endpoint")
    if endpoint is None:  # refused before routing
        endpoint = next((route.endpoint for route in _ROUTES if route.matches(scope)[0] is Match.FULL), None)
    return ("other", False) if endpoint is None else _NAMES.get(endpoint, ("other", False))


class _App(Starlette):
    """Without the framework's error layers: `Envelope` handles errors, and each layer costs time per message."""

    def build_middleware_stack(self) -> ASGIApp:
        context: ServerContext = self.state.context
        load, settings = context.load, context.load.settings
        guards_origin = is_local(settings)
        hosts, origins = names_of(settings.allowed_host), names_of(settings.cors_origin)

        def check(scope: Scope) -> None:
            if guards_origin and not load.keys:
                check_origin(scope, hosts, origins)
            check_key(scope, load.keys)

        app = Envelope(self.router, check, load, context.request_log, route_of)
        return below(settings.root_path, allow_origins(app, settings.cors_origin))


def create_app(context: ServerContext) -> Starlette:
    app = _App(routes=_ROUTES)
    app.state.context = context
    app.state.feeds = Feeds(context.client.watching, lambda: totals(context), lambda: replicas(context))
    context.load.on_drain.append(app.state.feeds.close)
    app.state.scrape = Scrape(context)
    app.state.token_check = health.TokenCheck(context)
    return app


def below(root: str | None, app: ASGIApp) -> ASGIApp:
    """The application at `root`, its path behind a proxy as in /llm, and at /: proxies may remove it or leave it."""
    if root is None:
        return app
    start = root.encode()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == root or path.startswith(root + "/"):
            raw = scope.get("raw_path") or path.encode()
            scope = {**scope, "path": path[len(root) :] or "/", "raw_path": raw.removeprefix(start) or b"/"}
        await app(scope, receive, send)

    return serve
