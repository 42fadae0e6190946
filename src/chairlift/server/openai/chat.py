"""POST /v1/chat/completions."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET
from msgspec.structs import replace as replace_fields
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.score import TokenScore
from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.gate import charged, enter
from chairlift.server.context import context_of
from chairlift.server.openai.chunks import Chunks, Envelope, Frame
from chairlift.server.openai.exchange import read_request, respond
from chairlift.server.openai.logprobs import chat_logprobs, prompt_logprobs
from chairlift.server.openai.params import attributes_of, chat_names, chat_params, given_params
from chairlift.server.openai.read_answers import ReadChunks, finish_of, read_message
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.requests import ChatRequest
from chairlift.server.openai.responses import ChatChoice, ChatCompletion, ChatLogprobs, ChatMessage
from chairlift.server.openai.structured import check_shape
from chairlift.server.openai.tools import is_older
from chairlift.server.openai.turns import chat_turn, held_params, turn_tokens
from chairlift.text.responses.turn import ReadAs
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
        turn = await chat_turn(context, request, limit)
        prompt = await turn_tokens(context, turn, limit)
        params = await held_params(context, request, turn, params)
        form = _Form(context.tokenizer, turn.read_as, is_older(request))
        # Frees the messages: they may be long, and the answer slow.
        del turn
        request = replace_fields(request, messages=[], tools=None, functions=None)
        leave_body(http.scope)
        reply = Reply(http, request, [prompt], params, attributes, time_left, read_as=form.read_as)
    return await respond(http, reply, form.chunks, form.completion)


@dataclass(frozen=True, slots=True)
class _Form:
    tokenizer: Tokenizer
    read_as: ReadAs | None
    is_older: bool  # calls are told as `function_call`

    def chunks(self, reply: Reply, index: int) -> Chunks:
        def build(tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> ChatLogprobs:
            return chat_logprobs(self.tokenizer, scores)

        scores = None if reply.params.logprobs is None else build
        answer = reply.answers[0]
        if self.read_as is None:
            return Frame(reply, answer, index, scores)
        return ReadChunks(Envelope(reply, answer, index, scores), self.read_as, self.is_older)

    def completion(self, reply: Reply, choices: list[Choice]) -> ChatCompletion:
        answer = reply.answers[0]
        asks_prompt = reply.params.prompt_logprobs is not None
        return ChatCompletion(
            **reply.lead(),
            choices=[self._choice(reply, index, choice) for index, choice in enumerate(choices)],
            usage=reply.usage(),
            prompt_logprobs=prompt_logprobs(self.tokenizer, answer.prompt_scores) if asks_prompt else UNSET,
            prompt_token_ids=answer.prompt if reply.request.return_token_ids else UNSET,
        )

    def _choice(self, reply: Reply, index: int, choice: Choice) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=self._message(choice),
            logprobs=None if reply.params.logprobs is None else chat_logprobs(self.tokenizer, choice.scores),
            finish_reason=finish_of(choice, self.is_older),
            stop_reason=choice.stop,
            token_ids=choice.tokens if reply.request.return_token_ids else UNSET,
        )

    def _message(self, choice: Choice) -> ChatMessage:
        if self.read_as is None:
            return ChatMessage("assistant", "".join(choice.text))
        return read_message(choice.events, self.read_as, self.is_older)
