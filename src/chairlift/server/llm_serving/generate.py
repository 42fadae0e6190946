"""POST /models/<anything>, …/generate and …/generate_stream.

Always: an answer that can be made has HTTP status 200, and what went wrong is its text. Every generated token has its
line, also when its text is empty. A prompt is never refused for the tokens it holds.
"""

import logging
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.server.answer import Answer
from chairlift.server.context import ServerContext, context_of
from chairlift.server.errors import request_id
from chairlift.server.exchange import ByteStream, read_body
from chairlift.server.llm_serving.coerce import InvalidBody
from chairlift.server.llm_serving.lines import (
    EVENT_HEADERS,
    Outcome,
    full_line,
    summary_line,
    token_line,
    token_object,
)
from chairlift.server.llm_serving.request import GenerateRequest, parse, sampling_params

logger = logging.getLogger(__name__)
_FINISHES = {"stop": "eos", "length": "length"}
# Finish reason, text and token id of an answer that is an error.
_OUT_OF_RANGE = ("prompt_out_of_range", "Error202: prompt out of range", 0)
_EMPTY = ("prompt_token_ids_empty", "Error203: prompt token empty", 0)
_FAILED = ("predict_failed", "error304: generation task stop abnormally!, please retry!", -1)


async def by_stream_field(http: Request) -> Response:
    return await _generate(http, None)


async def full(http: Request) -> Response:
    return await _generate(http, False)


async def streamed(http: Request) -> Response:
    return await _generate(http, True)


async def _generate(http: Request, streams: bool | None) -> Response:
    context = context_of(http)
    body = await read_body(http, context.settings.max_body_bytes)
    try:
        request = parse(body)
    except InvalidBody as error:
        return Response(msgspec.json.encode({"detail": error.detail}), 422, media_type="application/json")
    task = Task(context, request, request_id(http))
    if request.stream if streams is None else streams:
        is_sse = request.parameters.return_protocol == "sse"
        return ByteStream(task.lines(is_sse), headers=EVENT_HEADERS if is_sse else [], close=task.close)
    return ByteStream(task.full(), headers=[], close=task.close)


class Task:
    """One request, from its text to its last line."""

    def __init__(self, context: ServerContext, request: GenerateRequest, name: str) -> None:
        self._context = context
        self._request = request
        self._name = name
        self._answer: Answer | None = None
        self._outcome: Outcome | None = None

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()

    async def full(self) -> AsyncIterator[bytes]:
        async for _ in self._run():
            pass
        assert self._outcome is not None
        yield full_line(self._outcome)

    async def lines(self, is_sse: bool) -> AsyncIterator[bytes]:
        async for text, token in self._run():
            yield token_line(text, token, is_sse)
        assert self._outcome is not None
        if self._request.parameters.return_full_text:
            yield summary_line(self._outcome, is_sse)

    async def _run(self) -> AsyncIterator[tuple[str, str]]:
        """The text and the token object of each token; afterwards the outcome is known."""
        texts: list[str] = []
        tokens: list[str] = []
        failure = _FAILED
        try:
            self._answer = await self._submit()
            async for delta in self._answer.deltas():
                texts.append(delta.text)
                if delta.token is not None:
                    logit = 0.0 if delta.score is None else delta.score.logit
                    tokens.append(token_object(delta.token, logit, delta.text, not delta.text))
                    yield delta.text, tokens[-1]
                if delta.finish in _FINISHES:
                    finish = _FINISHES[delta.finish]
                    self._outcome = Outcome(text="".join(texts), finish=finish, num_tokens=len(tokens), tokens=tokens)
                    return
        except _Refused as refused:
            failure = refused.failure
        except InvalidRequest:
            failure = _OUT_OF_RANGE
        except ChairliftError as error:
            logger.warning("request %s failed: %s", self._name, error)
        except Exception as error:
            logger.error("request %s failed", self._name, exc_info=error)
        finish, message, token_id = failure
        token = token_object(token_id, 0.0, message, False)
        self._outcome = Outcome(text=message, finish=finish, num_tokens=len(tokens), tokens=[token])
        yield message, token

    async def _submit(self) -> Answer:
        context, parameters = self._context, self._request.parameters
        compat = context.settings.compat
        prompt: list[int] = []
        if self._request.inputs:
            prompt = await context.encode(compat.prompt_template.replace("{}", self._request.inputs), True)
        if not prompt:
            raise _Refused(_EMPTY)
        if compat.seq_length is not None and len(prompt) + parameters.max_new_tokens >= compat.seq_length:
            raise _Refused(_OUT_OF_RANGE)
        params = sampling_params(parameters, context.model_config.vocab_size)
        return Answer(context, prompt, params)


class _Refused(Exception):
    def __init__(self, failure: tuple[str, str, int]) -> None:
        super().__init__(failure[1])
        self.failure = failure
