"""POST /v1/completions."""

from dataclasses import replace

from msgspec import UNSET
from msgspec.structs import replace as replace_fields
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import InvalidRequest
from chairlift.core.limits import output_room
from chairlift.core.params import SamplingParams
from chairlift.server.bodies import leave_body
from chairlift.server.context import ServerContext, context_of
from chairlift.server.exchange import until_gone
from chairlift.server.gate import charged, enter
from chairlift.server.lock import key_of
from chairlift.server.openai.chunks import Frame
from chairlift.server.openai.exchange import event_stream, json_response, read_request, user_of
from chairlift.server.openai.job import Choice, Job
from chairlift.server.openai.logprobs import CompletionScores, prompt_logprobs
from chairlift.server.openai.params import DEFAULT_COMPLETION_TOKENS, completion_params, is_echo_only
from chairlift.server.openai.prompts import completion_prompts
from chairlift.server.openai.requests import CompletionRequest
from chairlift.server.openai.responses import Completion, CompletionChoice
from chairlift.server.record import follow

MAX_SAMPLES = 8192  # of a body; preparing that many takes a tenth of a second, in which nobody else is answered


async def completions(http: Request) -> Response:
    context, time_left = context_of(http), enter(http)
    request = await read_request(http, CompletionRequest)
    time_left.allow(request.timeout)
    params = completion_params(request, context.model_config.sampling)
    most = context.longest()
    with charged(http, most):
        prompts = await completion_prompts(context, request, most)
        request = replace_fields(request, prompt="")  # which may be long, while an answer may take long
        leave_body(http.scope)
        if len(prompts) * params.num_samples > MAX_SAMPLES:
            count = f"{len(prompts)} prompts with {params.num_samples} samples each"
            raise InvalidRequest("prompt", f"must ask for at most {MAX_SAMPLES} samples in all, got {count}")
        asked = [(prompt, _with_default_length(context, prompt, params)) for prompt in prompts]
        user, hides = user_of(http, request), is_echo_only(request)
        job = Job(context, request, "cmpl", asked, time_left=time_left, user=user, key=key_of(http), hides_output=hides)
    follow(http, job.answers)
    if request.stream:
        frames = [_frame(context, request, job, index) for index in range(len(prompts) * params.n)]
        return event_stream(http, job, frames, is_chat=False)
    try:
        choices = await until_gone(http.receive, job.collect())
    finally:
        job.close()
    return json_response(_completion(context, request, job, choices))


def _with_default_length(context: ServerContext, prompt: list[int], params: SamplingParams) -> SamplingParams:
    if params.max_tokens is not None:
        return params
    room = output_room(prompt, params, context.engine.limits)
    return replace(params, max_tokens=min(DEFAULT_COMPLETION_TOKENS, room))


def _echo(context: ServerContext, request: CompletionRequest, prompt: list[int]) -> str | None:
    return context.tokenizer.decode(prompt, request.skip_special_tokens is not False) if request.echo else None


def _scores(context: ServerContext, request: CompletionRequest, prompt: list[int]) -> CompletionScores:
    return CompletionScores(context.tokenizer, [] if request.echo else prompt, request.skip_special_tokens is not False)


def _frame(context: ServerContext, request: CompletionRequest, job: Job, index: int) -> Frame:
    answer = job.answers[index // job.params.n]
    scores = None if request.logprobs is None else _scores(context, request, answer.prompt).build
    echo = _echo(context, request, answer.prompt)
    return Frame(job, answer, index, is_chat=False, scores=scores, echo=echo)


def _completion(context: ServerContext, request: CompletionRequest, job: Job, choices: list[Choice]) -> Completion:
    return Completion(
        id=job.id,
        created=job.created,
        model=job.model,
        choices=[_choice(context, request, job, index, choice) for index, choice in enumerate(choices)],
        usage=job.usage(),
        system_fingerprint=job.fingerprint,
    )


def _choice(
    context: ServerContext, request: CompletionRequest, job: Job, index: int, choice: Choice
) -> CompletionChoice:
    answer = job.answers[index // job.params.n]
    tokens, scores, texts = choice.tokens, choice.scores, choice.text
    echo = _echo(context, request, answer.prompt)
    if echo is not None:
        tokens, scores = answer.prompt + tokens, [None, *answer.prompt_scores, *scores]
        texts = [echo, *texts]
    logprobs = None
    if request.logprobs is not None:
        logprobs = _scores(context, request, answer.prompt).build(tokens, scores)
    asks_prompt = request.prompt_logprobs is not None
    return CompletionChoice(
        index=index,
        text="".join(texts),
        logprobs=logprobs,
        finish_reason=choice.finish,
        stop_reason=choice.stop,
        prompt_logprobs=prompt_logprobs(context.tokenizer, answer.prompt_scores) if asks_prompt else UNSET,
        prompt_token_ids=answer.prompt if request.return_token_ids else UNSET,
        token_ids=choice.tokens if request.return_token_ids else UNSET,
    )
