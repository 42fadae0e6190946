"""What the routes of vectors and scores share: texts to inputs, inputs to numbers.

Always: each input is a request of its own for the engine, and all of a body are one group: bodies take turns. A body's
inputs are all checked before any is sent.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from msgspec.structs import replace as replace_fields
from starlette.requests import Request

from chairlift.core.attributes import ATTRIBUTES, Attributes
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.models.embedding.declared import EmbeddingConfig
from chairlift.server.admission.api_keys import key_of
from chairlift.server.admission.bodies import leave_body
from chairlift.server.admission.cost import MAX_INPUTS, MAX_PAIR_TOKENS, MAX_TOKENS, check_count
from chairlift.server.admission.gate import TimeLimit, enter
from chairlift.server.answer import Answer, Delta, start_all
from chairlift.server.context import ServerContext, context_of
from chairlift.server.embedding.objects import InputUsage
from chairlift.server.embedding.requests import InputRequest, check_form
from chairlift.server.encoder import TokenLimit
from chairlift.server.naming import naming
from chairlift.server.openai.exchange import read_request
from chairlift.server.receive import until_gone
from chairlift.server.request_log.record import record_of
from chairlift.text.embedding.texts import TOO_MANY, TRUNCATE, EmbeddingTexts, Framed, cut_to, too_long

_ONE_TOKEN = SamplingParams(max_tokens=1, temperature=0.0)  # that ends a request and means nothing
R = TypeVar("R", bound=InputRequest)


class Exchange:
    """One body, from its arrival to its numbers."""

    def __init__(self, http: Request, time_left: TimeLimit, request: InputRequest, texts: EmbeddingTexts) -> None:
        context = context_of(http)
        self.context: ServerContext = context
        self.texts = texts
        self.model = request.model or context.model_names[0]
        self.max_len = context.engine.limits.max_model_len - 1
        self._http, self._time_left, self._request = http, time_left, request
        most = cut_to(request.truncate_prompt_tokens, self.max_len)  # refuses it before any text is read
        num_kept = None if request.truncate_prompt_tokens is None else most
        if request.cuts:  # a text may be longer
            self._limit = TokenLimit(max(MAX_TOKENS, self.max_len), "are not handled at once", num_kept=num_kept)
        else:
            self._limit = TokenLimit(self.max_len, TOO_MANY, self.max_len)
        self._limit.cost = record_of(http).cost
        self._num_tokens = 0

    @property
    def config(self) -> EmbeddingConfig:
        return self.texts.config

    @property
    def usage(self) -> InputUsage:
        return InputUsage(self._num_tokens, self._num_tokens)

    async def encode(self, texts: Sequence[str], field: str, most: int | None = None) -> list[list[int]]:
        """Token ids, without those around them. `most`: so many of each text."""
        with naming({"prompt": field}):
            return [ids[:most] for ids in await self.context.encoder.encode_all(texts, False, self._limit)]

    async def singles(self, texts: Sequence[str], field: str, most: int | None = None) -> list[Framed]:
        cut = self._request.truncate_prompt_tokens
        return [self.texts.single(ids, self.max_len, cut, field) for ids in await self.encode(texts, field, most)]

    def framed(self, ids: list[int], field: str) -> Framed:
        """Token ids as the client gave them."""
        cut = self._request.truncate_prompt_tokens
        if cut is None and len(ids) > self.max_len:
            raise too_long(len(ids), self.max_len, field)
        return Framed(ids[: cut_to(cut, self.max_len)])

    async def pairs(
        self, queries: Sequence[str], documents: Sequence[str], instruction: str | None, most: int | None
    ) -> list[Framed]:
        """`most`: tokens of each document."""
        texts, cut = self.texts, self._request.truncate_prompt_tokens
        if texts.takes_pairs_as_text:
            if most is not None:
                raise InvalidRequest("max_tokens_per_doc", f"this model reads both texts as one; use {TRUNCATE}")
            pairs = list(zip(queries, documents, strict=True))
            head_of = partial(texts.before_document, instruction=instruction)
            with naming({"prompt": "documents"}):
                return await self.context.encoder.encode_joined(
                    pairs,
                    head_of,
                    self._limit,
                    lambda ids: self._counted(texts.single(ids, self.max_len, cut, "documents")),
                )
        once = list(dict.fromkeys(queries))
        ids = dict(zip(once, await self.encode([texts.prompted(text) for text in once], "query"), strict=True))
        second = await self.encode([texts.prompted(text) for text in documents], "documents", most)
        sides = zip((ids[query] for query in queries), second, strict=True)
        return [self._counted(texts.pair(*pair, self.max_len, cut, "documents")) for pair in sides]

    def _counted(self, pair: Framed) -> Framed:
        self._num_tokens += len(pair.tokens)
        if self._num_tokens > MAX_PAIR_TOKENS:
            why = f"each with its query, make more than {MAX_PAIR_TOKENS} tokens; send fewer, or a shorter query"
            raise InvalidRequest("documents", why)
        return pair

    async def made(self, inputs: Sequence[Framed], field: str) -> list[bytes]:
        """The numbers of each input."""
        http, record = self._http, record_of(self._http)
        leave_body(http.scope)
        check_count(field, "inputs", len(inputs), MAX_INPUTS)
        priority = ATTRIBUTES["priority"].read(self._request.priority or 0)
        attributes = Attributes(user=self._request.user or "", priority=priority, group=record.id)
        with naming({"prompt": field}):
            answers = []
            for each in inputs:
                answers.append(self._answer(each, attributes, field))
                await record.cost.breathe()
        record.answers = answers
        self._num_tokens = sum(len(each.tokens) for each in inputs)
        try:
            await until_gone(http.receive, _collected(answers))
        finally:
            for answer in answers:
                answer.close()
        return [answer.vector for answer in answers]

    def _answer(self, framed: Framed, attributes: Attributes, field: str) -> Answer:
        if framed.second_at:
            attributes = replace(attributes, second_at=framed.second_at)
        return Answer(
            self.context,
            record_of(self._http),
            framed.tokens,
            _ONE_TOKEN,
            attributes=attributes,
            key=key_of(self._http),
            expires=self._time_left.expires,
            names={"prompt": field},
        )


async def begin(
    http: Request, kind: type[R], check: Callable[[R], None] = lambda request: None, always_cuts: bool = False
) -> tuple[Exchange, R]:
    """Admits a request and reads its body; `check` refuses it before any text is tokenized. `always_cuts`: also where
    the body does not ask for it."""
    time_left = enter(http, makes_text=False)
    request = await read_request(http, kind)
    time_left.allow(request.timeout)
    check(request)
    if always_cuts and request.truncate_prompt_tokens is None:
        request = replace_fields(request, truncate_prompt_tokens=-1)
    texts = context_of(http).texts
    assert texts is not None  # else `enter` has refused it
    check_form(request, texts.config)
    return Exchange(http, time_left, request, texts), request


async def _collected(answers: Sequence[Answer]) -> None:
    if answers:
        collector = _Collector(len(answers))
        await start_all(answers, collector)
        await collector.done


class _Collector:
    """Waits for the end of all answers, or the first failure."""

    def __init__(self, num_open: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._num_open = num_open

    def add(self, index: int, delta: Delta) -> None:
        if delta.finish is not None:
            self._num_open -= 1
            if not self._num_open and not self.done.done():
                self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
