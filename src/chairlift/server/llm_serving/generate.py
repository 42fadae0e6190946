"""POST /models/<anything>, …/generate and …/generate_stream.

Always: the HTTP status is 200 and an error is the answer's text, except that `Rejected` has a status of its own. Every
generated token has its line, even without text. A text begins anew, without the space before its first word. A prompt
is never refused for the tokens it holds.
"""

import logging
from functools import partial

import msgspec
from msgspec.structs import replace as replace_fields
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chairlift.core.attributes import Attributes
from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.live.adapters.registry import Adapter
from chairlift.server.admission.api_keys import key_of
from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.gate import TimeLimit, enter
from chairlift.server.admission.rejected import Rejected
from chairlift.server.answer import Answer, Delta, RequestFailed
from chairlift.server.context import context_of
from chairlift.server.encoder import TokenLimit
from chairlift.server.errors import Detail, request_id
from chairlift.server.llm_serving.coerce import InvalidBody
from chairlift.server.llm_serving.lines import (
    EVENT_HEADERS,
    EVENTS,
    PLAIN,
    full_line,
    summary_line,
    token_line,
    token_object,
)
from chairlift.server.llm_serving.request import GenerateRequest, Parameters, decode, ignored, parse, sampling_params
from chairlift.server.receive import read_body
from chairlift.server.request_log.record import ignore, record_of
from chairlift.server.stream import ByteStream, Header

logger = logging.getLogger(__name__)
_BROKEN = "\ufffd"
_FINISHES = {"stop": "eos", "length": "length"}
Failure = tuple[str, str, int]  # finish reason, text and token id of an answer that is an error
_OUT_OF_RANGE = ("prompt_out_of_range", "Error202: prompt out of range", 0)
_EMPTY = ("prompt_token_ids_empty", "Error203: prompt token empty", 0)
_FAILED = ("predict_failed", "error304: generation task stop abnormally!, please retry!", -1)


async def _generate(http: Request, streams: bool | None) -> Response:
    """`streams` None: as the body says."""
    if streams is None and _is_mistyped(http.path_params["name"]):
        raise HTTPException(404, "there is POST /models/NAME, /models/NAME/generate and /models/NAME/generate_stream")
    context, time_left = context_of(http), enter(http)
    adapter = await _adapter(http)
    body = await read_body(http, context.load)
    try:
        values = decode(body)
        request = parse(values)
    except InvalidBody as error:
        return Response(msgspec.json.encode(Detail(error.detail)), 422, media_type="application/json")
    ignore(http, ignored(values))
    time_left.allow(request.timeout)
    streams = request.stream if streams is None else streams
    settings = context.settings
    has_logits = settings.llm_serving_logprob == "logit"
    lines = LineEncoder(request.parameters, streams, request_id(http), has_logits, settings.llm_serving_data)
    try:
        limit = context.prompt_limit(record_of(http).cost)
        answers = [await _answer(http, request, time_left, limit, adapter)]
        values, request = {}, replace_fields(request, inputs="")  # frees them: they may be long, and the answer slow
        leave_body(http.scope)
        record_of(http).answers = answers
        return ByteStream(answers, lines, headers=lines.headers)
    except ClientDisconnect:
        raise
    except Exception as error:
        response = Response(lines.fail(error, has_begun=False))
        response.raw_headers = [*lines.headers]
        return response


def _is_mistyped(name: str) -> bool:
    """Of a name with slashes: it ends as one of the other routes nearly does."""
    *before, last = name.strip("/").split("/")
    return bool(before) and last.startswith("generate")


by_stream_field, full, streamed = (partial(_generate, streams=streams) for streams in (None, False, True))


async def _answer(
    http: Request, request: GenerateRequest, time_left: TimeLimit, limit: TokenLimit, adapter: Adapter | None
) -> Answer:
    context = context_of(http)
    parameters, compat = request.parameters, context.settings.compat
    prompt: list[int] = []
    if request.inputs:
        text = compat.prompt_template.replace("{}", request.inputs)
        [prompt] = await context.encoder.encode_all([text], True, limit)
    if not prompt:
        raise _PromptRefused(_EMPTY)
    if compat.seq_length is not None and len(prompt) + parameters.max_new_tokens >= compat.seq_length:
        raise _PromptRefused(_OUT_OF_RANGE)
    params = sampling_params(parameters, context.model_config.vocab_size)
    attributes = Attributes(deadline_s=time_left.given_s)
    return Answer(
        context,
        record_of(http),
        prompt,
        params,
        attributes=attributes,
        key=key_of(http),
        expires=time_left.expires,
        adapter=adapter,
        continues=False,
    )


async def _adapter(http: Request) -> Adapter | None:
    """The one that the path names; any other name is the model's."""
    context, name = context_of(http), http.path_params["name"]
    return None if name in context.model_names else await context.find_adapter(name, record_of(http).cost)


class LineEncoder:
    """A line for each token and a summary, or all of it in one line."""

    def __init__(
        self, parameters: Parameters, streams: bool, name: str, has_logits: bool = True, data: str = "list"
    ) -> None:
        """`has_logits`: tokens show their raw logit, as llm-serving's do, not their log-probability. `data`: what the
        field of this name is, list or object."""
        self._streams = streams
        self._frame = EVENTS[data] if parameters.return_protocol == "sse" else PLAIN
        self._has_summary = parameters.return_full_text
        self._name = name
        self._has_logits = has_logits
        self._held = ""  # text that ends in a broken character, which comes with the next token's
        self._texts: list[str] = []
        self._tokens: list[str] = []
        self._finish = ""

    @property
    def headers(self) -> list[Header]:
        return EVENT_HEADERS if self._streams and self._frame != PLAIN else []

    def add(self, index: int, delta: Delta) -> bytes:
        if delta.finish is not None:
            if delta.finish not in _FINISHES:
                raise RequestFailed(f"it was ended by {delta.finish!r}")
            self._finish = _FINISHES[delta.finish]
        text, self._held = self._held + delta.text, ""
        if text.endswith(_BROKEN) and delta.finish is None:
            text, self._held = "", text
        self._texts.append(text)
        if delta.token is None:
            return b""
        score = delta.score
        likelihood = 0.0 if score is None else score.logit if self._has_logits else score.logprob
        token = token_object(delta.token, likelihood, text, not text)
        self._tokens.append(token)
        return token_line(text, token, self._frame) if self._streams else b""

    def end(self) -> bytes:
        return self._summary("".join(self._texts), self._finish, self._tokens)

    def fail(self, error: Exception, has_begun: bool) -> bytes:
        if isinstance(error, Rejected) and not has_begun:
            raise error
        finish, message, token_id = self._failure(error)
        token = token_object(token_id, 0.0, message, False)
        line = token_line(message, token, self._frame) if self._streams else b""
        return line + self._summary(message, finish, [token])

    def _summary(self, text: str, finish: str, shown: list[str]) -> bytes:
        if not self._streams:
            return full_line(text, finish, len(self._tokens), shown)
        return summary_line(text, finish, len(self._tokens), shown, self._frame) if self._has_summary else b""

    def _failure(self, error: Exception) -> Failure:
        match error:
            case _PromptRefused():
                return error.failure
            case InvalidRequest() if error.field != "model":  # of an adapter, which the prompt did not choose
                return _OUT_OF_RANGE
            case ChairliftError():
                logger.warning("request %s failed: %s", self._name, error)
            case _:
                logger.error("request %s failed", self._name, exc_info=error)
        return _FAILED


class _PromptRefused(InvalidRequest):
    def __init__(self, failure: Failure) -> None:
        super().__init__("inputs", failure[1])
        self.failure = failure
