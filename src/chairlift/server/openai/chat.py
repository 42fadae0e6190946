"""POST /v1/chat/completions."""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace as replace_fields
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.score import TokenScore
from chairlift.server.bodies import leave_body
from chairlift.server.context import ServerContext, context_of
from chairlift.server.exchange import until_gone
from chairlift.server.gate import charged, enter
from chairlift.server.lock import key_of
from chairlift.server.openai.chunks import Frame, Scores
from chairlift.server.openai.exchange import event_stream, json_response, read_request, user_of
from chairlift.server.openai.job import Choice, Job
from chairlift.server.openai.logprobs import chat_logprobs, prompt_logprobs
from chairlift.server.openai.params import chat_names, chat_params
from chairlift.server.openai.prompts import chat_prompt
from chairlift.server.openai.requests import ChatRequest
from chairlift.server.openai.responses import ChatChoice, ChatCompletion, ChatLogprobs, ChatMessage
from chairlift.server.record import follow


async def chat_completions(http: Request) -> Response:
    context, time_left = context_of(http), enter(http)
    request = await read_request(http, ChatRequest)
    time_left.allow(request.timeout)
    most = context.longest()
    with chat_names(request), charged(http, most):
        params = chat_params(request, context.model_config.sampling)
        prompt = await chat_prompt(context, request, most)
        request = replace_fields(request, messages=[])  # which may be long, while an answer may take long
        leave_body(http.scope)
        asked = [(prompt, params)]
        user, key = user_of(http, request), key_of(http)
        job = Job(context, request, "chatcmpl", asked, time_left=time_left, user=user, key=key)
    follow(http, job.answers)
    scores = _scores(context, request)
    if request.stream:
        frames = [Frame(job, job.answers[0], index, is_chat=True, scores=scores) for index in range(params.n)]
        return event_stream(http, job, frames, is_chat=True)
    try:
        choices = await until_gone(http.receive, job.collect())
    finally:
        job.close()
    return json_response(_completion(context, request, job, choices))


def _scores(context: ServerContext, request: ChatRequest) -> Scores | None:
    if not request.logprobs:
        return None

    def build(tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> ChatLogprobs:
        return chat_logprobs(context.tokenizer, scores)

    return build


def _completion(context: ServerContext, request: ChatRequest, job: Job, choices: list[Choice]) -> ChatCompletion:
    answer = job.answers[0]
    asks_prompt = request.prompt_logprobs is not None
    return ChatCompletion(
        id=job.id,
        created=job.created,
        model=job.model,
        choices=[_choice(context, request, index, choice) for index, choice in enumerate(choices)],
        usage=job.usage(),
        system_fingerprint=job.fingerprint,
        prompt_logprobs=prompt_logprobs(context.tokenizer, answer.prompt_scores) if asks_prompt else UNSET,
        prompt_token_ids=answer.prompt if request.return_token_ids else UNSET,
    )


def _choice(context: ServerContext, request: ChatRequest, index: int, choice: Choice) -> ChatChoice:
    return ChatChoice(
        index=index,
        message=ChatMessage("assistant", "".join(choice.text)),
        logprobs=chat_logprobs(context.tokenizer, choice.scores) if request.logprobs else None,
        finish_reason=choice.finish,
        stop_reason=choice.stop,
        token_ids=choice.tokens if request.return_token_ids else UNSET,
    )
