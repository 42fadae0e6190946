"""POST /v1/messages and POST /v1/messages/count_tokens."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.admission.gate import enter
from chairlift.server.anthropic.events import MessageEvents
from chairlift.server.anthropic.message import message_of
from chairlift.server.anthropic.objects import TokenCount
from chairlift.server.anthropic.request import CountTokensRequest, MessagesRequest
from chairlift.server.anthropic.translate import translate
from chairlift.server.naming import naming
from chairlift.server.openai.chat_reply import chat_reply
from chairlift.server.openai.exchange import json_response, read_request, respond
from chairlift.server.openai.models import counted, token_limit
from chairlift.server.openai.translated import Translated
from chairlift.server.openai.turns import chat_turn, turn_tokens
from chairlift.server.request_log.ignored import ignore


async def messages(http: Request) -> Response:
    time_left = enter(http)
    translated = await _translated(http, MessagesRequest)
    reply = await chat_reply(http, translated.chat, time_left, "msg_", names=translated.names, lowers_max_tokens=True)
    del translated
    return await respond(http, reply, MessageEvents, lambda *given: [msgspec.json.encode(message_of(*given))])


async def count_tokens(http: Request) -> Response:
    context = counted(http)
    translated = await _translated(http, CountTokensRequest)
    limit = token_limit(context)
    with naming(translated.names):
        tokens = await turn_tokens(context, await chat_turn(context, translated.chat, limit), limit)
    return json_response(TokenCount(len(tokens)))


async def _translated(http: Request, kind: type[CountTokensRequest]) -> Translated:
    translated = translate(await read_request(http, kind))
    ignore(http, translated.ignored)
    return translated
