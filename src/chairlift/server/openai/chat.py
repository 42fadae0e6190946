"""POST /v1/chat/completions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.score import TokenScore
from chairlift.server.admission.gate import enter
from chairlift.server.context import context_of
from chairlift.server.openai.chat_reply import chat_reply
from chairlift.server.openai.chunks import ChunkEncoder, Chunks, Envelope, Frame
from chairlift.server.openai.exchange import read_request, respond
from chairlift.server.openai.logprobs import chat_logprobs, chat_pieces, prompt_logprobs
from chairlift.server.openai.objects import ChatChoice, ChatCompletion, ChatLogprobs, ChatMessage
from chairlift.server.openai.read_answers import ReadChunks, finish_of, read_message
from chairlift.server.openai.reply import Choice, Reply
from chairlift.server.openai.requests import ChatRequest
from chairlift.server.openai.tools import is_older
from chairlift.server.openai.whole import with_choices, with_logprobs, with_prompt_logprobs
from chairlift.text.responses.turn import ReadAs
from chairlift.text.tokenizer import Tokenizer

_encode = msgspec.json.Encoder().encode


async def chat_completions(http: Request) -> Response:
    time_left = enter(http)
    request = await read_request(http, ChatRequest)
    older = is_older(request)
    reply = await chat_reply(http, request, time_left, "chatcmpl-")
    form = _Form(context_of(http).tokenizer, reply.read_as, older)
    return await respond(http, reply, partial(ChunkEncoder, frame=form.chunks), form.completion)


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

    def completion(self, reply: Reply, choices: list[Choice]) -> Iterator[bytes]:
        answer = reply.answers[0]
        prompt_ids = answer.prompt if reply.request.return_token_ids else None
        around = ChatCompletion(**reply.lead(), choices=[], usage=reply.usage(), prompt_token_ids=prompt_ids)
        parts = with_choices(around, (self._choice(reply, *each) for each in enumerate(choices)))
        if reply.params.prompt_logprobs is None:
            return parts
        return with_prompt_logprobs(parts, prompt_logprobs(self.tokenizer, answer.prompt_scores))

    def _choice(self, reply: Reply, index: int, choice: Choice) -> Iterable[bytes]:
        shown = ChatChoice(
            index=index,
            message=self._message(choice),
            logprobs=None,
            finish_reason=finish_of(choice, self.is_older),
            stop_reason=choice.stop,
            token_ids=choice.tokens if reply.request.return_token_ids else None,
        )
        scores = None if reply.params.logprobs is None else chat_pieces(self.tokenizer, choice.scores)
        return with_logprobs(_encode(shown), scores)

    def _message(self, choice: Choice) -> ChatMessage:
        if self.read_as is None:
            return ChatMessage("assistant", "".join(choice.text))
        return read_message(choice.events, self.read_as, self.is_older)
