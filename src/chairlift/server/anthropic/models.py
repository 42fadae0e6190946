"""GET /v1/models and /v1/models/{name}, as Anthropic's clients read them."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.anthropic.objects import ModelInfo, ModelPage
from chairlift.server.context import ServerContext, context_of
from chairlift.server.openai.exchange import json_response
from chairlift.server.openai.models import max_model_len
from chairlift.server.openai.reply import check_model


async def models(http: Request) -> Response:
    context = context_of(http)
    names = context.names()
    return json_response(ModelPage([_info(context, name) for name in names], False, names[0], names[-1]))


async def model(http: Request) -> Response:
    context = context_of(http)
    name = http.path_params["name"]
    check_model(context, name)
    return json_response(_info(context, name))


def _info(context: ServerContext, name: str) -> ModelInfo:
    created_at = datetime.fromtimestamp(context.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    most = max_model_len(context)
    return ModelInfo(id=name, display_name=name, created_at=created_at, max_input_tokens=most, max_tokens=most)
