"""POST /v1/chat/completions."""

from collections.abc import Sequence
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace as replace_fields
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.score import TokenScore
from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.gate import charged, enter
from chairlift.server.context import context_of
from chairlift.server.openai.chunks import Frame
from chairlift.server.openai.exchange import read_request, respond
from chairlift.server.openai.logprobs import chat_logprobs, prompt_logprobs
from chairlift.server.openai.params import attributes_of, chat_names, chat_params, given_params
from chairlift.server.openai.prompts import chat_prompt
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.requests import ChatRequest
from chairlift.server.openai.responses import ChatChoice, ChatCompletion, ChatLogprobs, ChatMessage
from chairlift.server.openai.structured import check_shape
from chairlift.text.tokenizer import Tokenizer


async def chat_completions(http: Request) -> Response:
    context, time_left = context_of(http), enter(http)
    request = await read_request(http, ChatRequest)
    time_left.allow(request.timeout)
    given, limit = given_params(request), context.prompt_limit()
    with chat_names(request), charged(http, limit):
        params = chat_params(request, given, context.model_config.sampling)
        attributes = attributes_of(http, request, time_left.given_s)
        await check_shape(context, request, params)
        prompt = await chat_prompt(context, request, limit)
        request = replace_fields(request, messages=[])  # frees them: they may be long, and the answer slow
        leave_body(http.scope)
        reply = Reply(http, request, [prompt], params, attributes, time_left)
    return await respond(http, reply, partial(_frame, context.tokenizer), partial(_completion, context.tokenizer))


def _frame(tokenizer: Tokenizer, reply: Reply, index: int) -> Frame:
    def scores(tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> ChatLogprobs:
        return chat_logprobs(tokenizer, scores)

    return Frame(reply, reply.answers[0], index, None if reply.params.logprobs is None else scores)


def _completion(tokenizer: Tokenizer, reply: Reply, choices: list[Choice]) -> ChatCompletion:
    answer = reply.answers[0]
    asks_prompt = reply.params.prompt_logprobs is not None
    return ChatCompletion(
        **reply.lead(),
        choices=[_choice(tokenizer, reply, index, choice) for index, choice in enumerate(choices)],
        usage=reply.usage(),
        prompt_logprobs=prompt_logprobs(tokenizer, answer.prompt_scores) if asks_prompt else UNSET,
        prompt_token_ids=answer.prompt if reply.request.return_token_ids else UNSET,
    )


def _choice(tokenizer: Tokenizer, reply: Reply, index: int, choice: Choice) -> ChatChoice:
    return ChatChoice(
        index=index,
        message=ChatMessage("assistant", "".join(choice.text)),
        logprobs=None if reply.params.logprobs is None else chat_logprobs(tokenizer, choice.scores),
        finish_reason=choice.finish,
        stop_reason=choice.stop,
        token_ids=choice.tokens if reply.request.return_token_ids else UNSET,
    )
