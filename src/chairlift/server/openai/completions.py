"""POST /v1/completions, with its prompts as token ids."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace as replace_fields
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.cost import (
    MAX_PROMPTS,
    check_prompt_scores,
    check_repeated,
    check_samples,
    check_shown_ids,
    most_scored,
)
from chairlift.server.admission.gate import enter
from chairlift.server.context import ServerContext, context_of
from chairlift.server.encoder import TokenLimit
from chairlift.server.openai.chunks import ChunkEncoder, Frame
from chairlift.server.openai.exchange import read_request, respond
from chairlift.server.openai.logprobs import ShownPrompt
from chairlift.server.openai.objects import Completion, CompletionChoice
from chairlift.server.openai.params import attributes_of, completion_params, given_params, is_echo_only
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.requests import CompletionRequest
from chairlift.server.openai.structured import check_shape, naming_shape, with_banned
from chairlift.server.openai.whole import with_choices, with_logprobs, with_prompt_logprobs
from chairlift.server.request_log.record import record_of
from chairlift.text.tokenizer import Tokenizer

_encode = msgspec.json.Encoder().encode
DEFAULT_TOKENS = 16


async def completions(http: Request) -> Response:
    context, time_left = context_of(http), enter(http)
    request = await read_request(http, CompletionRequest)
    time_left.allow(request.timeout)
    given = given_params(request)
    params = completion_params(request, given, context.model_config.sampling)
    attributes = attributes_of(http, request, time_left.given_s)
    cost = record_of(http).cost
    default_tokens = None if "max_tokens" in given else DEFAULT_TOKENS
    limit = context.prompt_limit(cost)
    await check_shape(context, request, params, cost, default_tokens)
    params = await with_banned(context, params, cost)
    prompts = await completion_prompts(context, request, limit)
    request = replace_fields(request, prompt="")  # frees it: it may be long, and the answer slow
    leave_body(http.scope)
    check_samples(len(prompts), params)
    with naming_shape(request):
        check_repeated(len(prompts), params)
    num_tokens = sum(map(len, prompts))
    check_prompt_scores(num_tokens, params.n, params)
    if request.return_token_ids:
        check_shown_ids(num_tokens, params.n)
    most_scored(len(prompts), params)
    reply = Reply(
        http,
        request,
        params,
        attributes,
        time_left,
        id_prefix="cmpl-",
        hides_output=is_echo_only(request, given),
        default_tokens=default_tokens,
    )
    await reply.take(prompts)
    form = _Form(context.tokenizer, request, "prompt_logprobs" in given)
    return await respond(http, reply, partial(ChunkEncoder, frame=form.frame), form.completion)


class _Form:
    def __init__(self, tokenizer: Tokenizer, request: CompletionRequest, shows_prompt_scores: bool) -> None:
        self._tokenizer = tokenizer
        self._request = request
        self._shows_prompt_scores = shows_prompt_scores
        self._prompts: dict[int, ShownPrompt] = {}

    def frame(self, reply: Reply, index: int) -> Frame:
        prompt = self._prompt(reply, index)
        echo = prompt if self._echoes else None
        if reply.params.logprobs is None:
            return Frame(reply, prompt.answer, index, None, echo)
        scores = prompt.choice_scores(self._echoes)
        return Frame(reply, prompt.answer, index, scores.build, echo, scores.pieces if self._echoes else None)

    def completion(self, reply: Reply, choices: list[Choice]) -> Iterator[bytes]:
        around = Completion(**reply.lead(), choices=[], usage=reply.usage())
        return with_choices(around, (self._choice(reply, *each) for each in enumerate(choices)))

    def _choice(self, reply: Reply, index: int, choice: Choice) -> Iterator[bytes]:
        prompt = self._prompt(reply, index)
        texts = [prompt.text, *choice.text] if self._echoes else choice.text
        scores = None if reply.params.logprobs is None else prompt.choice_scores(self._echoes)
        has_ids = self._request.return_token_ids
        shown = CompletionChoice(
            index=index,
            text="".join(texts),
            logprobs=None,
            finish_reason=choice.finish,
            stop_reason=choice.stop,
            prompt_token_ids=prompt.answer.prompt if has_ids else None,
            token_ids=choice.tokens if has_ids else None,
        )
        pieces = None if scores is None else scores.pieces(choice.tokens, choice.scores)
        parts = with_logprobs(_encode(shown), pieces)
        return with_prompt_logprobs(parts, prompt.scores()) if self._shows_prompt_scores else parts

    def _prompt(self, reply: Reply, index: int) -> ShownPrompt:
        """Of the choice with this index."""
        number = index // reply.params.n
        if number not in self._prompts:
            self._prompts[number] = ShownPrompt(self._tokenizer, reply.answers[number])
        return self._prompts[number]

    @property
    def _echoes(self) -> bool:
        return bool(self._request.echo)


async def completion_prompts(context: ServerContext, request: CompletionRequest, limit: TokenLimit) -> list[list[int]]:
    prompt = request.prompt
    items: Sequence[Any] = [prompt] if isinstance(prompt, str) else prompt
    if len(items) > max(MAX_PROMPTS, limit.num_tokens) and isinstance(items[0], int):  # before reading all
        raise limit.refusal(f"{len(items)} tokens {limit.why}", len(items))
    if items and all(isinstance(item, int) for item in items):
        items = [items]
    if not items:
        raise InvalidRequest("prompt", "must not be empty")
    if len(items) > MAX_PROMPTS:
        raise InvalidRequest("prompt", f"must hold at most {MAX_PROMPTS} prompts, got {len(items)}")
    if len({type(item) for item in items}) > 1 or isinstance(items[0], int):
        raise InvalidRequest("prompt", "must be text, a list of texts, token ids or a list of token-id lists")
    if not all(items):
        raise InvalidRequest("prompt", "must not be empty")
    if isinstance(items[0], list):
        return list(items)
    add_special = request.add_special_tokens is not False
    return await context.encoder.encode_all(items, add_special, limit)
