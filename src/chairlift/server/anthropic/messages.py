"""POST /v1/messages and POST /v1/messages/count_tokens; GET /v1/models and /v1/models/{name}, as Anthropic's clients
read them."""

from datetime import UTC, datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.admission.gate import begin_cost, enter
from chairlift.server.anthropic.events import MessageEvents
from chairlift.server.anthropic.message import message_of
from chairlift.server.anthropic.objects import ModelInfo, ModelPage, TokenCount
from chairlift.server.anthropic.request import CountTokensRequest, MessagesRequest
from chairlift.server.anthropic.translate import translate
from chairlift.server.context import ServerContext, context_of
from chairlift.server.naming import naming
from chairlift.server.openai.chat_reply import chat_reply
from chairlift.server.openai.exchange import json_response, read_request, respond
from chairlift.server.openai.models import counted, max_model_len, token_limit
from chairlift.server.openai.translated import Translated
from chairlift.server.openai.turns import chat_turn, turn_tokens
from chairlift.server.request_log.record import ignore, record_of


async def messages(http: Request) -> Response:
    time_left = enter(http)
    translated = await _translated(http, MessagesRequest)
    reply = await chat_reply(http, translated.chat, time_left, "msg_", names=translated.names, lowers_max_tokens=True)
    del translated
    return await respond(http, reply, MessageEvents, lambda *given: [msgspec.json.encode(message_of(*given))])


async def count_tokens(http: Request) -> Response:
    context = counted(http)
    translated = await _translated(http, CountTokensRequest)
    limit = token_limit(context, record_of(http).cost)
    with naming(translated.names):
        tokens = await turn_tokens(context, await chat_turn(context, translated.chat, limit), limit)
    return json_response(TokenCount(len(tokens)))


async def _translated(http: Request, kind: type[CountTokensRequest]) -> Translated:
    translated = translate(await read_request(http, kind))
    ignore(http, translated.ignored)
    return translated


async def models(http: Request) -> Response:
    context = context_of(http)
    names = await context.names(begin_cost(http))
    return json_response(ModelPage([_info(context, name) for name in names], False, names[0], names[-1]))


async def model(http: Request) -> Response:
    context = context_of(http)
    name = http.path_params["name"]
    await context.adapter(name, begin_cost(http))
    return json_response(_info(context, name))


def _info(context: ServerContext, name: str) -> ModelInfo:
    created_at = datetime.fromtimestamp(context.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    most = max_model_len(context)
    return ModelInfo(id=name, display_name=name, created_at=created_at, max_input_tokens=most, max_tokens=most)
