"""One request in the engine, read as text: tokens come in, pieces of text and finish reasons go out.

Always: each sample gets exactly one delta with `finish` set, its last, unless the answer fails; a closed answer has
left the engine and the load. It fails at its timeout, whatever the engine is doing. Knows nothing of JSON or HTTP.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import msgspec

from chairlift.config.keys import ApiKey
from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.core.limits import output_room
from chairlift.core.params import SamplingParams
from chairlift.core.score import ScoreList, TokenScore
from chairlift.live.adapters.registry import Adapter
from chairlift.live.wire.generation import Generation
from chairlift.live.wire.messages import Output
from chairlift.server.admission.api_keys import salt_of
from chairlift.server.admission.bounds import Reservation
from chairlift.server.admission.cost import GIVEN_UP_TOKENS, filter_tokens, prompt_tokens, score_tokens
from chairlift.server.admission.rejected import OutOfTime
from chairlift.server.context import ServerContext
from chairlift.server.naming import NO_NAMES, naming
from chairlift.server.request_log.record import Record
from chairlift.telemetry.phases import Mark
from chairlift.text.detokenize import last_bytes
from chairlift.text.responses.reading.events import Event
from chairlift.text.responses.reading.stream import ResponseStream
from chairlift.text.responses.turn import ReadAs
from chairlift.text.stream import TextStream


class RequestFailed(ChairliftError):
    """The engine failed on the request; a retry may help."""


class Delta(msgspec.Struct, frozen=True, gc=False):
    """One token of one sample with the text it completes, or only the sample's end."""

    sample: int
    token: int | None
    text: str
    score: TokenScore | None = None
    finish: str | None = None  # "stop", "length" or "abort"
    stop: str | int | None = None  # the stop string or stop token that ended it
    events: Sequence[Event] = ()  # of an answer that is read: its content, reasoning and calls


class AnswerReader(Protocol):
    """Reads one or more answers, each known by an index."""

    def add(self, index: int, delta: Delta) -> None: ...

    def fail(self, error: Exception) -> None:
        """One answer has failed; deltas of the others may come until they are closed."""
        ...


class Answer:
    """Checks a request when made and submits it when started; always `close` it."""

    def __init__(
        self,
        context: ServerContext,
        record: Record,
        prompt: list[int],
        params: SamplingParams,
        *,
        attributes: Attributes = NO_ATTRIBUTES,
        key: ApiKey | None = None,
        expires: float | None = None,
        default_tokens: int | None = None,
        read_as: ReadAs | None = None,
        names: Mapping[str, str] = NO_NAMES,
        adapter: Adapter | None = None,
        continues: bool = True,
    ) -> None:
        """`continues`: the text goes on with that of the prompt, and does not begin anew. `default_tokens`: the most
        to make where the request does not say; None: all that fit. `read_as`: how the text is read; without it, all of
        it is content. `names`: of fields in the client's body, for what the engine refuses."""
        self.max_output = output_room(prompt, params, context.engine.limits)
        if params.max_tokens is None and default_tokens is not None:
            self.max_output = min(default_tokens, self.max_output)
            params = replace(params, max_tokens=self.max_output)
        self.load = context.load
        self.limit = None if adapter is None else context.load.adapters.find(adapter.name)
        self.key = key
        self.payers = [payer for payer in (key, self.limit) if payer is not None]
        self.prompt = prompt
        self.adapter = adapter
        self.params = params
        self.demand = (max(params.num_samples, params.beam_width), len(prompt))
        self.num_cached = 0
        self.num_output = 0
        self.prompt_scores: Sequence[TokenScore | None] = ()
        self.vector = b""  # float32 numbers, where the model makes them instead of text
        # For the request log; times are of the monotonic clock.
        self.first: float | None = None  # token
        self.last: float | None = None  # end of a sample
        self.finish: str | None = None  # of that sample
        self.error: Exception | None = None
        self.marks: list[Mark] | None = [] if record.is_traced else None  # its states in the engine
        self.kept: list[str] | None = [] if record.keeps_text else None  # its text
        self.cost = record.cost
        self._name = record.id
        self._names = names
        self._client = context.client
        self._attributes = attributes
        if key is not None:
            salt = salt_of(key, attributes.cache_salt, context.settings.share_prefixes)
            self._attributes = replace(attributes, cache_salt=salt, user=key.name, share=key.weight)
        if self.limit is not None and self.limit.weight is not None:
            self._attributes = replace(self._attributes, user=self.limit.label, share=self.limit.weight)
        self._eos_ids = () if params.ignore_eos else context.model_config.eos_ids
        end_ids = frozenset((*self._eos_ids, *params.stop_token_ids))
        self._tokenizer = context.tokenizer
        self._make_text = partial(TextStream if read_as is None else read_as.stream, self._tokenizer)
        self._hides = params.skip_special_tokens if read_as is None else read_as.hides_special(params)
        self._before = None if continues else b""  # None: not looked for yet
        self._end_ids = end_ids
        self._texts: list[TextStream | ResponseStream | None] = [None] * params.num_samples  # from its first output on
        self._is_read = read_as is not None
        self._is_given_up = False  # because of its shape
        self._open = set(range(params.num_samples))
        self._generation: Generation | None = None
        self._is_held = False
        self._reservation: Reservation | None = None
        self._expires = expires
        self._timer: asyncio.TimerHandle | None = None

    def start(self, reader: AnswerReader, index: int, reservation: Reservation) -> None:
        self._reader, self._index = reader, index
        self._reservation, reservation.fail = reservation, self.fail
        if self._expires is not None:
            left_s = self._expires - time.monotonic()
            if left_s <= 0:
                raise OutOfTime
            self._timer = asyncio.get_running_loop().call_later(left_s, self.fail, OutOfTime())
        self._generation = self._client.submit(
            self.prompt,
            self.params,
            self.max_output,
            self,
            attributes=self._attributes,
            expires=self._expires,
            name=self._name,
            is_traced=self.marks is not None,
            adapter=self.adapter,
        )
        if self._is_held:
            self._generation.hold()

    def close(self) -> None:
        if self._reservation is not None:
            self._reservation.leave()
            self._reservation = None
            num_made = self._num_computed()
            num_more = score_tokens(num_made, self.params) + filter_tokens(num_made, self.params)
            self.load.charge(self.payers, num_made + num_more + GIVEN_UP_TOKENS * self._is_given_up)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._generation is not None:
            self._generation.abort()
            self._generation = None

    def hold(self) -> None:
        """Also before it is started."""
        self._is_held = True
        if self._generation is not None:
            self._generation.hold()

    def release(self, until: float = math.inf) -> bool:
        """False: at `until` some was left, which is held."""
        self._is_held = False
        return self._generation is None or self._generation.release(until)

    def put(self, output: Output) -> None:
        if output.prompt_scores is not None:
            self.prompt_scores = ScoreList.of(output.prompt_scores)
        if output.vector is not None:
            self.vector = output.vector
        if output.num_cached > self.num_cached:
            self.num_cached = output.num_cached
        if output.token is not None:
            self.load.has_heard = True
            if not self.num_output and self._reservation is not None:
                self.first = time.monotonic()
                self._reservation.begin()
        if output.marks is not None and self.marks is not None:
            self.marks += output.marks
        # A sample that a stop string ended may have had further tokens in flight.
        if output.sample in self._open and (output.token is not None or output.finish is not None):
            delta = self._read(output)
            written = delta.text
            if self._is_read:
                delta, written = self._with_events(delta)
            if self.kept is not None and not self.vector:
                self.kept.append(written)
            self._reader.add(self._index, delta)

    def fail(self, error: Exception) -> None:
        self.error = error
        self._reader.fail(error)

    @property
    def num_reasoning(self) -> int | None:
        """Tokens of reasoning; None where the text is not read."""
        streams = [texts for texts in self._texts if isinstance(texts, ResponseStream)]
        return sum(texts.num_reasoning for texts in streams) if self._is_read else None

    def _with_events(self, delta: Delta) -> tuple[Delta, str]:
        """And the text as the model wrote it."""
        texts = self._texts[delta.sample]
        assert isinstance(texts, ResponseStream)
        return msgspec.structs.replace(delta, events=texts.events()), texts.take_written()

    def _num_computed(self) -> int:
        """Generated tokens, also those that the client never read. A beam search shows only its answers, at its end:
        each beam counts as their mean length, or as its longest if the client gave up."""
        width = self.params.beam_width
        if self._generation is None:  # it expired before it began
            return 0
        if not width:
            return self._generation.num_made
        if not self._open:
            return math.ceil(width * self.num_output / self.params.num_samples)
        was_given_up = self.error is None or isinstance(self.error, OutOfTime)
        return width * self.max_output if was_given_up else 0

    def _begin_text(self, sample: int) -> TextStream | ResponseStream:
        if self._before is None:
            self._before = last_bytes(self._tokenizer, self.prompt, self._hides)
        texts = self._texts[sample] = self._make_text(self._before, self.params, self._end_ids)
        return texts

    def _read(self, output: Output) -> Delta:
        if output.finish == "timeout":
            raise OutOfTime
        if output.finish == "error":
            message = output.error or "the engine gave no reason"
            self._is_given_up = output.error_field == "structured_outputs"
            with naming(self._names):
                raise InvalidRequest(output.error_field, message) if output.error_field else RequestFailed(message)
        sample, token, finish = output.sample, output.token, output.finish
        texts, text = self._texts[sample] or self._begin_text(sample), ""
        if token is not None:
            self.num_output += 1
            text = texts.push(token)
        if texts.stop is None and finish is None:
            return Delta(sample, token, text, output.score)
        self._open.discard(sample)
        self.last, self.finish = time.monotonic(), finish or "stop"
        if finish is None:
            assert self._generation is not None
            self._generation.abort_sample(sample)
        elif texts.stop is None:
            text += texts.finish()
        if texts.stop is not None:
            return Delta(sample, token, text, output.score, "stop", texts.stop)
        ending = token if finish == "stop" and token not in self._eos_ids else None
        return Delta(sample, token, text, output.score, finish, ending)


async def start_all(answers: Sequence[Answer], reader: AnswerReader) -> None:
    """Reserves for all and submits them, or raises `Overloaded` and does neither. Others run between the submissions of
    many; it raises where the client leaves meanwhile."""
    first = answers[0]
    load, payers, cost = first.load, first.payers, first.cost
    demands = [answer.demand for answer in answers]
    reservations = load.take(demands, first.limit, first.key)
    try:
        num_samples = sum(num_each for num_each, _ in demands)
        num_tokens = sum(prompt_tokens(len(answer.prompt), answer.params) for answer in answers)
        load.spend(payers, num_samples, num_tokens + cost.shape_tokens)
        cost.paid()
        for index, (answer, reservation) in enumerate(zip(answers, reservations, strict=True)):
            answer.start(reader, index, reservation)
            await cost.breathe()
    except BaseException:
        for reservation in reservations:
            reservation.leave()
        raise
