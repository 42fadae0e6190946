"""The application: every route, and how errors leave it."""

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from chairlift.server import health
from chairlift.server.context import ServerContext
from chairlift.server.envelope import Envelope
from chairlift.server.llm_serving import generate, status
from chairlift.server.openai import models
from chairlift.server.openai.chat import chat_completions
from chairlift.server.openai.completions import completions
from chairlift.server.openapi import openapi

_ROUTES = (
    Route("/", models.welcome),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/models", models.models),
    Route("/v1/models/{name:path}", models.model),
    Route("/tokenize", models.tokenize, methods=["POST"]),
    Route("/detokenize", models.detokenize, methods=["POST"]),
    Route("/health", health.health),
    Route("/health/live", health.live),
    Route("/health/ready", health.ready),
    Route("/health/generate", health.generate),
    Route("/version", models.version),
    Route("/openapi.json", openapi),
    # A model's name may hold slashes, so the longer paths are tried first.
    Route("/models/{name:path}/generate", generate.full, methods=["POST"]),
    Route("/models/{name:path}/generate_stream", generate.streamed, methods=["POST"]),
    Route("/models/{name:path}", generate.by_stream_field, methods=["POST"]),
    Route("/serving/get_bs", status.batch_slots),
    Route("/serving/get_request_numbers", status.num_waiting),
    Route("/serving/get_serverd_model_info", status.model_info),
)


class _App(Starlette):
    """Errors leave by the envelope alone; the framework's own layers for them would ask every message twice more."""

    def build_middleware_stack(self) -> ASGIApp:
        return Envelope(self.router, self.state.context.load)


def create_app(context: ServerContext) -> Starlette:
    app = _App(routes=_ROUTES)
    app.state.context = context
    app.state.token_check = health.TokenCheck(context)
    return app
