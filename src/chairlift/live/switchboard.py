"""Joins front ends to the engine: their submissions become requests, its events become their outputs.

Always: every submitted sample ends with exactly one output that has a finish, unless its front end aborted it or hung
up. Knows nothing of sockets; the engine process and the offline API both use it.
"""

import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace

from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidRequest
from chairlift.core.events import Admitted, Event, Finished, Forked, PromptScored, RuleFailed, Shrunk, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits, num_offered, output_room
from chairlift.core.request import FinishReason, Request
from chairlift.live.messages import Abort, Output, Submit

FrontEnd = bytes
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Line:
    """Who hears of a request."""

    front_end: FrontEnd
    key: int
    sample: int
    num_cached: int | None = None  # prompt tokens found in the cache when the request first stepped on


class Switchboard:
    def __init__(self, engine: Engine, limits: Limits, eos_ids: Iterable[int]) -> None:
        self.engine = engine
        self._limits = limits
        # Models name end tokens that they do not have; a runner that forbids one would write beside its logits.
        self._eos_ids = frozenset(token for token in eos_ids if token < limits.vocab_size)
        self._lines: dict[RequestId, Line] = {}
        self._requests: dict[tuple[FrontEnd, int], list[RequestId]] = {}
        self._next_id = 0
        self._refused: list[tuple[FrontEnd, Output]] = []

    @property
    def has_work(self) -> bool:
        return self.engine.has_work or bool(self._refused)

    def submit(self, front_end: FrontEnd, message: Submit) -> None:
        """Queues the request; one that can never be served is answered with the next step."""
        try:
            samples = self._samples(message)
        except InvalidRequest as error:
            for i in range(message.params.num_samples):
                output = Output(
                    message.key, i, None, FinishReason.ERROR.value, error=error.message, error_field=error.field
                )
                self._refused.append((front_end, output))
            return
        # Members of a search beyond the wanted answers say nothing.
        heard = [request for request in samples if request.sample_index < message.params.num_samples]
        self._requests[front_end, message.key] = [request.id for request in heard]
        for request in heard:
            self._lines[request.id] = Line(front_end, message.key, request.sample_index)
        self.engine.add(samples)

    def abort(self, front_end: FrontEnd, message: Abort) -> None:
        """Ends a request or one sample of it; nobody is told. One that is not there has already ended."""
        for request in list(self._requests.get((front_end, message.key), ())):
            if message.sample is None or self._lines[request].sample == message.sample:
                self.engine.abort(request)
                self._hang_up(request)

    def drop(self, front_end: FrontEnd) -> None:
        """A front end is gone: so are its requests."""
        self._refused = [(to, output) for to, output in self._refused if to != front_end]
        for request in [request for request, line in self._lines.items() if line.front_end == front_end]:
            self.engine.abort(request)
            self._hang_up(request)

    def step(self) -> dict[FrontEnd, list[Output]]:
        """One step of the engine, and what each front end hears of it."""
        outputs: dict[FrontEnd, list[Output]] = {}
        for front_end, refusal in self._refused:
            outputs.setdefault(front_end, []).append(refusal)
        self._refused.clear()
        for event in self.engine.step():
            line = self._lines.get(event.request)
            if line is not None:
                output = self._output(event, line)
                if output is not None:
                    outputs.setdefault(line.front_end, []).append(output)
            elif isinstance(event, RuleFailed):
                _log.warning("%s; the plain one takes its place", event.message)
            elif isinstance(event, Shrunk):
                _log.warning("a step did not fit (%s); the next has %d tokens at most", event.message, event.max_tokens)
        return outputs

    def _output(self, event: Event, line: Line) -> Output | None:
        if isinstance(event, Token):
            num_cached = line.num_cached or 0
            if event.finish is None:
                return Output(line.key, line.sample, event.token, None, event.score, num_cached)
            self._hang_up(event.request)
            return Output(line.key, line.sample, event.token, event.finish.value, event.score, num_cached)
        if isinstance(event, Admitted | Forked):
            if line.num_cached is None:
                line.num_cached = event.num_cached if isinstance(event, Admitted) else 0
        elif isinstance(event, PromptScored):
            return Output(line.key, line.sample, None, prompt_scores=list(event.scores))
        elif isinstance(event, Finished):
            self._hang_up(event.request)
            return Output(line.key, line.sample, None, event.finish.value, error=event.message)
        return None

    def _hang_up(self, request: RequestId) -> None:
        line = self._lines.pop(request)
        requests = self._requests[line.front_end, line.key]
        requests.remove(request)
        if not requests:
            del self._requests[line.front_end, line.key]

    def _samples(self, message: Submit) -> tuple[Request, ...]:
        params = message.params
        max_output = output_room(message.prompt, params, self._limits)
        stop_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos_ids)
        lead = Request(
            id=self._new_id(),
            prompt=tuple(message.prompt),
            params=params,
            max_output=max_output,
            seed=secrets.randbits(64) if params.seed is None else params.seed,
            stop_ids=stop_ids,
            adapter=message.adapter,
            cache_salt=message.cache_salt,
            priority=message.priority,
            user=message.user,
            deadline_s=message.deadline_s,
            timeout_s=None if message.expires is None else message.expires - self.engine.clock.now(),
        )
        if params.beam_width:
            count = num_offered(params, len(stop_ids), len(message.prompt), self._limits)
            lead = replace(lead, params=replace(params, logprobs=count, temperature=0.0))  # nothing is drawn
            return lead, *(replace(lead, id=self._new_id(), sample_index=i) for i in range(1, params.beam_width))
        if params.best_of and params.logprobs is None:  # whoever chooses the best needs to know how likely they are
            params = replace(params, logprobs=0)
            lead = replace(lead, params=params)
        if params.num_samples == 1:
            return (lead,)
        others = replace(params, prompt_logprobs=None)  # the prompt is scored once, for the first sample
        more = range(1, params.num_samples)
        return lead, *(replace(lead, id=self._new_id(), params=others, sample_index=i) for i in more)

    def _new_id(self) -> RequestId:
        self._next_id += 1
        return RequestId(self._next_id)
