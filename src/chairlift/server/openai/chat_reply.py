"""A chat body to a reply in progress: what all routes that answer chats have in common."""

from collections.abc import Mapping
from dataclasses import replace

from starlette.requests import Request

from chairlift.core.limits import room_after
from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.cost import check_prompt_scores, most_scored
from chairlift.server.admission.gate import TimeLimit
from chairlift.server.context import context_of
from chairlift.server.naming import NO_NAMES, naming, through
from chairlift.server.openai.params import attributes_of, chat_names, chat_params, given_params
from chairlift.server.openai.reply import Reply
from chairlift.server.openai.requests import ChatRequest
from chairlift.server.openai.structured import check_shape, with_banned
from chairlift.server.openai.turns import chat_turn, held_params, turn_tokens
from chairlift.server.request_log.record import record_of


async def chat_reply(
    http: Request,
    request: ChatRequest,
    time_left: TimeLimit,
    id_prefix: str,
    *,
    names: Mapping[str, str] = NO_NAMES,
    lowers_max_tokens: bool = False,
    tells_again: bool = False,
) -> Reply:
    """Empties the request's messages and tools: they may be long, and the answer slow. `names`: of a translated body.
    `lowers_max_tokens`: to what fits after the prompt; else more is refused. `tells_again`: all of an answer at the end
    of its stream."""
    context = context_of(http)
    cost = record_of(http).cost
    limit = context.prompt_limit(cost)
    names = through(chat_names(request), names)
    with naming(names):
        time_left.allow(request.timeout)
        given = given_params(request)
        params = chat_params(request, given, context.model_config.sampling)
        attributes = attributes_of(http, request, time_left.given_s)
        await check_shape(context, request, params, cost)
        params = await with_banned(context, params, cost)
        turn = await chat_turn(context, request, limit)
        prompt = await turn_tokens(context, turn, limit)
        check_prompt_scores(len(prompt), 1, params)
        most = most_scored(1, params, tells_again)
        params = await held_params(context, request, turn, params, cost)
        if lowers_max_tokens and params.max_tokens is not None:
            room = room_after(len(prompt), context.engine.limits)
            params = replace(params, max_tokens=min(params.max_tokens, room))
        read_as = turn.read_as
        del turn
        for texts in (request.messages, request.tools, request.functions):
            if texts:
                texts.clear()
        leave_body(http.scope)
        reply = Reply(
            http,
            request,
            params,
            attributes,
            time_left,
            id_prefix=id_prefix,
            default_tokens=most,
            read_as=read_as,
            names={field: name for field, name in names.items() if "[" not in field},  # what an engine may refuse
        )
        return await reply.take([prompt])
