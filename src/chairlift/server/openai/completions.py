"""POST /v1/completions."""

from dataclasses import dataclass
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace as replace_fields
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.gate import charged, enter
from chairlift.server.answer import Answer
from chairlift.server.context import context_of
from chairlift.server.openai.chunks import ChunkEncoder, Frame
from chairlift.server.openai.exchange import read_request, respond
from chairlift.server.openai.logprobs import CompletionScores, prompt_logprobs
from chairlift.server.openai.objects import Completion, CompletionChoice
from chairlift.server.openai.params import attributes_of, completion_params, given_params, is_echo_only
from chairlift.server.openai.prompts import completion_prompts
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.requests import CompletionRequest
from chairlift.server.openai.structured import check_shape
from chairlift.text.tokenizer import Tokenizer

DEFAULT_TOKENS = 16
MAX_SAMPLES = 8192  # of a body; preparing that many takes a tenth of a second, in which other requests wait


async def completions(http: Request) -> Response:
    context, time_left = context_of(http), enter(http)
    request = await read_request(http, CompletionRequest)
    time_left.allow(request.timeout)
    given = given_params(request)
    params = completion_params(request, given, context.model_config.sampling)
    attributes = attributes_of(http, request, time_left.given_s)
    limit = context.prompt_limit()
    with charged(http, limit):
        await check_shape(context, request, params, DEFAULT_TOKENS)
        prompts = await completion_prompts(context, request, limit)
        request = replace_fields(request, prompt="")  # frees it: it may be long, and the answer slow
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
            id_prefix="cmpl-",
            hides_output=is_echo_only(request, given),
            default_tokens=DEFAULT_TOKENS,
        )
    form = _Form(context.tokenizer, request, "prompt_logprobs" in given)
    return await respond(http, reply, partial(ChunkEncoder, frame=form.frame), form.completion)


@dataclass(frozen=True, slots=True)
class _Form:
    tokenizer: Tokenizer
    request: CompletionRequest
    shows_prompt_scores: bool

    def frame(self, reply: Reply, index: int) -> Frame:
        answer = reply.answers[index // reply.params.n]
        scores = self._scores(answer)
        return Frame(reply, answer, index, None if scores is None else scores.build, self._echo(answer))

    def completion(self, reply: Reply, choices: list[Choice]) -> Completion:
        n = reply.params.n
        return Completion(
            **reply.lead(),
            choices=[self._choice(reply.answers[index // n], index, choice) for index, choice in enumerate(choices)],
            usage=reply.usage(),
        )

    def _choice(self, answer: Answer, index: int, choice: Choice) -> CompletionChoice:
        tokens, scores, texts = choice.tokens, choice.scores, choice.text
        echo = self._echo(answer)
        if echo is not None:
            tokens, scores = answer.prompt + tokens, [None, *answer.prompt_scores, *scores]
            texts = [echo, *texts]
        score = self._scores(answer)
        prompt_scores = prompt_logprobs(self.tokenizer, answer.prompt_scores) if self.shows_prompt_scores else UNSET
        return CompletionChoice(
            index=index,
            text="".join(texts),
            logprobs=None if score is None else score.build(tokens, scores),
            finish_reason=choice.finish,
            stop_reason=choice.stop,
            prompt_logprobs=prompt_scores,
            prompt_token_ids=answer.prompt if self.request.return_token_ids else UNSET,
            token_ids=choice.tokens if self.request.return_token_ids else UNSET,
        )

    def _echo(self, answer: Answer) -> str | None:
        if not self.request.echo:
            return None
        return self.tokenizer.decode(answer.prompt, answer.params.skip_special_tokens)

    def _scores(self, answer: Answer) -> CompletionScores | None:
        if answer.params.logprobs is None:
            return None
        before = [] if self.request.echo else answer.prompt
        return CompletionScores(self.tokenizer, before, answer.params.skip_special_tokens)
