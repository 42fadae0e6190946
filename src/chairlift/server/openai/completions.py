"""POST /v1/completions."""

from functools import partial

from msgspec import UNSET
from msgspec.structs import replace as replace_fields
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.gate import charged, enter
from chairlift.server.answer import Answer
from chairlift.server.context import ServerContext, context_of
from chairlift.server.openai.chunks import Frame
from chairlift.server.openai.exchange import read_request, respond
from chairlift.server.openai.logprobs import CompletionScores, prompt_logprobs
from chairlift.server.openai.params import attributes_of, completion_params, given_params, is_echo_only
from chairlift.server.openai.prompts import completion_prompts
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.requests import CompletionRequest
from chairlift.server.openai.responses import Completion, CompletionChoice

DEFAULT_TOKENS = 16
MAX_SAMPLES = 8192  # of a body; preparing that many takes a tenth of a second, in which nobody else is answered


async def completions(http: Request) -> Response:
    context, time_left = context_of(http), enter(http)
    request = await read_request(http, CompletionRequest)
    time_left.allow(request.timeout)
    given = given_params(request)
    params = completion_params(request, given, context.model_config.sampling)
    attributes = attributes_of(http, request, time_left.given_s)
    limit = context.prompt_limit()
    with charged(http, limit):
        prompts = await completion_prompts(context, request, limit)
        request = replace_fields(request, prompt="")  # which may be long, while an answer may take long
        leave_body(http.scope)
        if len(prompts) * params.num_samples > MAX_SAMPLES:
            count = f"{len(prompts)} prompts with {params.num_samples} samples each"
            raise InvalidRequest("prompt", f"must ask for at most {MAX_SAMPLES} samples in all, got {count}")
        reply = Reply(
            http,
            request,
            prompts,
            params,
            attributes,
            time_left,
            is_chat=False,
            hides_output=is_echo_only(request, given),
            default_tokens=DEFAULT_TOKENS,
        )
    completion = partial(_completion, context, request, "prompt_logprobs" in given)
    return await respond(http, reply, partial(_frame, context, request), completion)


def _echo(context: ServerContext, request: CompletionRequest, answer: Answer) -> str | None:
    return context.tokenizer.decode(answer.prompt, answer.params.skip_special_tokens) if request.echo else None


def _scores(context: ServerContext, request: CompletionRequest, answer: Answer) -> CompletionScores | None:
    if answer.params.logprobs is None:
        return None
    before = [] if request.echo else answer.prompt
    return CompletionScores(context.tokenizer, before, answer.params.skip_special_tokens)


def _frame(context: ServerContext, request: CompletionRequest, reply: Reply, index: int) -> Frame:
    answer = reply.answers[index // reply.params.n]
    scores = _scores(context, request, answer)
    build = None if scores is None else scores.build
    return Frame(reply, answer, index, build, _echo(context, request, answer))


def _completion(
    context: ServerContext, request: CompletionRequest, shows_prompt_scores: bool, reply: Reply, choices: list[Choice]
) -> Completion:
    n = reply.params.n
    return Completion(
        id=reply.id,
        created=reply.created,
        model=reply.model,
        choices=[
            _choice(context, request, shows_prompt_scores, reply.answers[index // n], index, choice)
            for index, choice in enumerate(choices)
        ],
        usage=reply.usage(),
        system_fingerprint=reply.fingerprint,
    )


def _choice(
    context: ServerContext,
    request: CompletionRequest,
    shows_prompt_scores: bool,
    answer: Answer,
    index: int,
    choice: Choice,
) -> CompletionChoice:
    tokens, scores, texts = choice.tokens, choice.scores, choice.text
    echo = _echo(context, request, answer)
    if echo is not None:
        tokens, scores = answer.prompt + tokens, [None, *answer.prompt_scores, *scores]
        texts = [echo, *texts]
    score = _scores(context, request, answer)
    prompt_scores = prompt_logprobs(context.tokenizer, answer.prompt_scores) if shows_prompt_scores else UNSET
    return CompletionChoice(
        index=index,
        text="".join(texts),
        logprobs=None if score is None else score.build(tokens, scores),
        finish_reason=choice.finish,
        stop_reason=choice.stop,
        prompt_logprobs=prompt_scores,
        prompt_token_ids=answer.prompt if request.return_token_ids else UNSET,
        token_ids=choice.tokens if request.return_token_ids else UNSET,
    )
