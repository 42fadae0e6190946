"""POST /v1/responses."""

from collections.abc import Iterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from chairlift.server.admission.gate import enter
from chairlift.server.context import context_of
from chairlift.server.openai.chat_reply import chat_reply
from chairlift.server.openai.exchange import read_request, respond
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.responses.events import ResponseEvents, whole_pieces
from chairlift.server.openai.responses.request import ResponseRequest
from chairlift.server.openai.responses.response import Echo
from chairlift.server.openai.responses.translate import translate
from chairlift.server.openai.translated import Translated
from chairlift.server.request_log.record import ignore


async def responses(http: Request) -> Response:
    time_left, tokenizer = enter(http), context_of(http).tokenizer
    translated, echo = _translated(await read_request(http, ResponseRequest))
    ignore(http, translated.ignored)
    reply = await chat_reply(http, translated.chat, time_left, "resp_", names=translated.names, tells_again=True)
    del translated

    def complete(reply: Reply, choices: list[Choice]) -> Iterator[bytes]:
        [choice] = choices
        return whole_pieces(reply, tokenizer, echo, choice)

    return await respond(http, reply, partial(ResponseEvents, tokenizer=tokenizer, echo=echo), complete)


def _translated(request: ResponseRequest) -> tuple[Translated, Echo]:
    translated = translate(request)
    return translated, Echo.of(request)
