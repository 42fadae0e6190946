"""An OpenAI response in progress: the answers to its prompts and the fields around them."""

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.requests import Request

from chairlift.core.attributes import Attributes
from chairlift.core.params import SamplingParams
from chairlift.core.score import ScoreList, TokenScore, best_samples
from chairlift.server.admission.api_keys import key_of
from chairlift.server.admission.gate import TimeLimit
from chairlift.server.answer import Answer, Delta, start_all
from chairlift.server.context import context_of
from chairlift.server.naming import NO_NAMES
from chairlift.server.openai.objects import CachedTokens, ReasoningTokens, Usage
from chairlift.server.openai.requests import ChatRequest, GenerationRequest
from chairlift.server.request_log.record import record_of
from chairlift.text.responses.reading.events import Content, Event
from chairlift.text.responses.turn import ReadAs


@dataclass(slots=True)
class Choice:
    """One sample of one prompt, as far as it is generated."""

    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    scores: list[TokenScore | None] | ScoreList = field(default_factory=list)
    finish: str | None = None
    stop: str | int | None = None
    events: list[Event] = field(default_factory=list)  # of an answer that is read
    told_at: list[int] = field(default_factory=list)  # the number of tokens when each came

    def add(self, delta: Delta) -> None:
        self.text.append(delta.text)
        if delta.token is not None:
            self.tokens.append(delta.token)
            self.scores.append(delta.score)
        if delta.finish is not None:
            self.finish, self.stop = delta.finish, delta.stop
        if delta.events:
            self.events += delta.events
            self.told_at += [len(self.tokens)] * len(delta.events)


class Reply:
    def __init__(
        self,
        http: Request,
        request: GenerationRequest,
        params: SamplingParams,
        attributes: Attributes,
        time_left: TimeLimit,
        *,
        id_prefix: str,
        hides_output: bool = False,  # the engine's token is not part of the answer
        default_tokens: int | None = None,
        read_as: ReadAs | None = None,  # how the text of a chat answer is read
        names: Mapping[str, str] = NO_NAMES,
    ) -> None:
        """To be told its prompts (`take`)."""
        context, record = context_of(http), record_of(http)
        self._record = record
        self.id = id_prefix + secrets.token_hex(16)
        self.created = int(time.time())
        self.model = request.model or context.model_names[0]
        engine = context.client.info
        self.fingerprint = None if engine is None else engine.fingerprint
        self.request = request
        self.params = params
        self.is_chat = isinstance(request, ChatRequest)
        self.read_as = read_as
        self.hides_output = hides_output
        self.name = record.id
        # Tokens that never have text of their own; that of others is at most held back.
        self.silent_ids = context.tokenizer.special_ids if params.skip_special_tokens else frozenset()
        self._find = partial(context.adapter, request.model, record.cost)
        self.answers: list[Answer] = []
        self._prompt_ids: dict[int, bytes] = {}  # by the answer's identity
        self._answer = partial(
            Answer,
            context,
            record,
            params=params,
            attributes=attributes,
            key=key_of(http),
            expires=time_left.expires,
            default_tokens=default_tokens,
            read_as=read_as,
            names=names,
        )

    async def take(self, prompts: Iterable[list[int]]) -> "Reply":
        """With an answer to each, all of them checked."""
        adapter = await self._find()
        for prompt in prompts:
            self.answers.append(self._answer(prompt, adapter=adapter))
            await self._record.cost.breathe()
        self._record.answers = self.answers
        return self

    async def collect(self) -> list[Choice]:
        """The n choices for the first prompt, complete, then those for the second, and so on."""
        scores = ScoreList if self.params.logprobs is not None or self.params.best_of else list
        collector = _Collector(len(self.answers), self.params.num_samples, scores)
        await start_all(self.answers, collector)
        await collector.done
        made = collector.made
        if self.params.best_of:
            scored = ([each.scores for each in samples if isinstance(each.scores, ScoreList)] for samples in made)
            best = [best_samples(scores, self.params.n) for scores in scored]
            made = [[samples[i] for i in chosen] for samples, chosen in zip(made, best, strict=True)]
        if self.hides_output:
            made = [[Choice(finish="length") for _ in samples] for samples in made]
        return [choice for samples in made for choice in samples]

    def events_of(self, delta: Delta) -> Sequence[Event]:
        """All is content where the answer is not read."""
        if self.read_as is not None:
            return delta.events
        return [Content(delta.text)] if delta.text else []

    def told(self, choice: Choice) -> Iterator[tuple[Event, int]]:
        """The events of a whole answer, each with the number of tokens when it came."""
        if self.read_as is not None:
            yield from zip(choice.events, choice.told_at, strict=True)
        else:
            yield from ((Content(text), index) for index, text in enumerate(choice.text, 1) if text)

    def new_call_id(self) -> str:
        assert self.read_as is not None  # else there are no calls
        return self.read_as.new_call_id()

    def lead(self) -> dict[str, Any]:
        """The fields that name it."""
        return {"id": self.id, "created": self.created, "model": self.model, "system_fingerprint": self.fingerprint}

    def prompt_ids(self, answer: Answer) -> bytes:
        """As JSON, made once for all samples."""
        if id(answer) not in self._prompt_ids:
            self._prompt_ids[id(answer)] = msgspec.json.encode(answer.prompt)
        return self._prompt_ids[id(answer)]

    def usage(self) -> Usage:
        num_prompt, num_cached, num_output = self._record.num_tokens()
        num_output = 0 if self.hides_output else num_output
        thought = self.answers[0].num_reasoning if self.answers else None
        details = UNSET if thought is None else ReasoningTokens(thought)
        return Usage(num_prompt, num_prompt + num_output, num_output, CachedTokens(num_cached), details)


class _Collector:
    """Reads answers to their end."""

    def __init__(self, num_answers: int, num_samples: int, scores: type[ScoreList] | type[list[Any]]) -> None:
        self.made = [[Choice(scores=scores()) for _ in range(num_samples)] for _ in range(num_answers)]
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._num_open = num_answers * num_samples

    def add(self, index: int, delta: Delta) -> None:
        self.made[index][delta.sample].add(delta)
        if delta.finish is not None:
            self._num_open -= 1
            if not self._num_open and not self.done.done():
                self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
