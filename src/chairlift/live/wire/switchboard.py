"""Joins front ends to the engine: submissions become requests, events become outputs.

Always: every submitted sample ends with exactly one output that has a finish, unless its front end aborted it or is
gone. Knows nothing of sockets; the engine process and the offline API both use it.
"""

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from msgspec.structs import replace as replace_fields

from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidRequest
from chairlift.core.events import (
    Admitted,
    Embedded,
    Event,
    Exported,
    Finished,
    Forked,
    PromptScored,
    RuleFailed,
    Shrunk,
    Token,
)
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits, num_offered, room_after
from chairlift.core.request import FinishReason, Request, resume
from chairlift.core.structured import NO_FURTHER
from chairlift.live.adapters.reading import AdapterReading
from chairlift.live.moving.moves import Moves
from chairlift.live.wire.messages import Abort, Move, Output, Submit, resumed, with_scored_prompt
from chairlift.live.wire.recipients import FrontEnd, Recipient, Recipients
from chairlift.telemetry.phases import OVER, Mark, after

_draw_seed = partial(secrets.randbits, 64)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Submission:
    """A submitted message and its open samples."""

    message: Submit
    requests: list[RequestId]


class Switchboard:
    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        eos_ids: Iterable[int],
        recipients: Recipients,
        draw_seed: Callable[[], int] = _draw_seed,
        reading: AdapterReading | None = None,
        moves: Moves | None = None,
    ) -> None:
        """`recipients`: none so far. `draw_seed`: of a request that brings none. `reading`: where requests may have
        adapters. `moves`: where they move between engines."""
        self.engine = engine
        self._limits = limits
        # Some models name end tokens beyond their vocabulary; forbidding one would write outside the logits.
        self._eos_ids = frozenset(token for token in eos_ids if token < limits.vocab_size)
        self.recipients = recipients
        self._recipients = recipients.by_request
        self._submissions: dict[tuple[FrontEnd, int], Submission] = {}
        self.waiting: dict[FrontEnd, set[int]] = {}  # keys of requests that were in no step yet
        self._ids = map(RequestId, count(1))
        self._immediate: list[tuple[FrontEnd, Output]] = []  # answers that need no step
        self._exported: list[Exported] = []
        self._draw_seed = draw_seed
        self.reading = reading
        self.moves = moves

    @property
    def has_work(self) -> bool:
        return self.engine.has_work or bool(self._immediate)

    def submit(self, front_end: FrontEnd, message: Submit) -> None:
        """Queues a request that was checked (`output_room`). A search too large for the pool, or a prompt that only
        fitted the engine before this one, is refused with the next step. One whose adapter is not in memory is held
        until it is."""
        if message.adapter is not None:
            if self.reading is None:
                self._refuse(front_end, message, "model", "this engine takes no adapters; start it with --lora-dir")
                return
            if self.reading.holds(front_end, message, message.adapter):
                return
        try:
            samples = self._samples(message)
        except InvalidRequest as error:
            self._refuse(front_end, message, error.field, error.message)
            return
        groups = [samples] if message.outputs is None else resume(samples, message.outputs)
        for group in groups:
            if len(group[0].output) >= group[0].max_output:  # the engine before had more room
                self._immediate.append((front_end, Output(message.key, group[0].sample_index, None, "length")))
            else:
                self._add(front_end, message, group)

    def _refuse(self, front_end: FrontEnd, message: Submit, field: str, why: str) -> None:
        refused = Output(message.key, 0, None, "error", error=why, error_field=field)
        samples = range(message.params.num_samples)
        self._immediate += [(front_end, replace_fields(refused, sample=i)) for i in samples]

    def _take_read(self) -> None:
        """Goes on with requests whose adapters have been read."""
        for (front_end, message), fault in self.reading.take() if self.reading is not None else ():
            if fault is None:
                self.submit(front_end, message)
            else:
                self._refuse(front_end, message, "model", fault)

    def _unhold(self, front_end: FrontEnd, key: int | None = None) -> list[Submit]:
        """Takes requests of a front end out that wait for their adapters; all of them without a key."""
        if self.reading is None:
            return []
        held = self.reading.remove(lambda each: each.front_end == front_end and key in (None, each.message.key))
        return [each.message for each in held]

    def move(self, front_end: FrontEnd, message: Move) -> bool:
        """Has a request leave with its keys and values; False when it cannot, or had better not."""
        submission = self._submissions.get((front_end, message.key))
        if self.moves is None or submission is None or len(submission.requests) > 1:
            return False
        (request,) = submission.requests
        if not message.is_forced and not self.moves.is_cheaper(request):
            return False
        self.moves.leave(front_end, message.key, request)
        return True

    def is_new(self, front_end: FrontEnd, key: int) -> bool:
        """Whether a request waits for its first step; its samples do so together."""
        submission, scheduler = self._submissions.get((front_end, key)), self.engine.scheduler
        return submission is not None and any(map(scheduler.is_new, submission.requests))

    def take_exported(self) -> list[Exported]:
        exported, self._exported = self._exported, []
        return exported

    def _add(self, front_end: FrontEnd, message: Submit, group: tuple[Request, ...]) -> None:
        submission = self._submissions.setdefault((front_end, message.key), Submission(message, []))
        self.waiting.setdefault(front_end, set()).add(message.key)
        for request in group:
            if request.sample_index < message.params.num_samples:  # else a silent member of a search
                num_cached = 0 if request.output else None  # the engine before sent the number
                marks: list[Mark] | None = [] if message.is_traced and request.sample_index == 0 else None
                recipient = Recipient(front_end, message.key, request.sample_index, num_cached, message.name, marks)
                self._recipients[request.id] = recipient
                submission.requests.append(request.id)
        ticket, moves = message.ticket, self.moves
        (*_, last) = group
        if ticket is None or moves is None or len(group) > 1 or not moves.accepts(ticket, [*last.prompt, *last.output]):
            self.engine.add(group)
        else:
            moved = replace(last, num_moved=ticket.num_tokens)
            self.engine.add((moved,))
            moves.arrive(moved, ticket)

    def abort(self, front_end: FrontEnd, message: Abort) -> None:
        """Ends a request or one sample without an output. A missing one has already ended."""
        for held in self._unhold(front_end, message.key):
            left = without(held, message.sample)
            if left is not None:
                self.submit(front_end, left)
        submission = self._submissions.get((front_end, message.key))
        for request in list(submission.requests) if submission is not None else ():
            if message.sample is None or self._recipients[request].sample == message.sample:
                self._end(request, message.has_moved)

    def drop(self, front_end: FrontEnd) -> None:
        """Ends the requests of a front end that is gone."""
        self._immediate = [(to, output) for to, output in self._immediate if to != front_end]
        lost = [submission for (to, _), submission in self._submissions.items() if to == front_end]
        log_lost(front_end, len(lost) + len(self._unhold(front_end)))
        for request in [request for submission in lost for request in submission.requests]:
            self._end(request)

    def withdraw(self, front_end: FrontEnd, key: int) -> Submit:
        """Takes a request out of the engine; submitting the result resumes it."""
        for held in self._unhold(front_end, key):
            return held
        submission = self._submissions[front_end, key]
        live = self.engine.scheduler.live
        progresses = {self._recipients[request].sample: live[request] for request in submission.requests}
        outputs = {sample: p.tokens[len(p.request.prompt) :] for sample, p in progresses.items()}
        arrival = next(iter(progresses.values())).arrival
        for request in list(submission.requests):
            self._end(request)
        return resumed(submission.message, outputs, self.engine.clock.now() - arrival)

    def open_keys(self) -> list[tuple[FrontEnd, int]]:
        """Front end and key of every request that has not ended."""
        held = () if self.reading is None else (each for group in self.reading.held.values() for each in group)
        return [*self._submissions, *((each.front_end, each.message.key) for each in held)]

    def step(self) -> dict[FrontEnd, list[Output]]:
        """One step of the engine; the outputs of each front end."""
        outputs: dict[FrontEnd, list[Output]] = {}
        self._take_read()
        for front_end, answer in self._immediate:
            outputs.setdefault(front_end, []).append(answer)
        self._immediate.clear()
        for event in self.engine.step():
            recipient = self._recipients.get(event.request)
            if recipient is not None:
                output = self._output(event, recipient)
                if output is not None:
                    if recipient.marks:
                        output = replace_fields(output, marks=recipient.marks)
                        recipient.marks = []
                    outputs.setdefault(recipient.front_end, []).append(output)
            elif isinstance(event, RuleFailed):
                _log.warning("%s; the plain one takes its place", event.message)
            elif isinstance(event, Shrunk):
                _log.warning("a step did not fit (%s); the next has %d tokens at most", event.message, event.max_tokens)
        if self.reading is not None:
            self.reading.begin()  # the step may have ended the last request of an adapter that took the room
        return outputs

    def _output(self, event: Event, recipient: Recipient) -> Output | None:
        if isinstance(event, Token):
            finish = None
            if event.finish is not None:
                finish = event.finish.value
                self._forget(event.request)
            return Output(recipient.key, recipient.sample, event.token, finish, event.score, recipient.num_cached or 0)
        if recipient.marks is not None and (phase := after("", event)) not in ("", OVER):
            recipient.marks.append((phase, event.at))
        if isinstance(event, Admitted | Forked):
            self._not_waiting(recipient)
            if recipient.num_cached is None:
                recipient.num_cached = event.num_cached if isinstance(event, Admitted) else 0
        elif isinstance(event, Exported):
            self._exported.append(event)
        elif isinstance(event, PromptScored):
            submission = self._submissions[recipient.front_end, recipient.key]
            submission.message = with_scored_prompt(submission.message)
            return Output(recipient.key, recipient.sample, None, prompt_scores=event.scores.packed())
        elif isinstance(event, Embedded):
            return Output(recipient.key, recipient.sample, None, vector=event.vector)
        elif isinstance(event, Finished):
            if event.finish is FinishReason.ERROR:
                _log.warning("request %s failed: %s", recipient.name, event.message)
            self._forget(event.request)
            field = "structured_outputs" if event.message.startswith(NO_FURTHER) else None
            ended = Output(recipient.key, recipient.sample, None, event.finish.value, error=event.message)
            return replace_fields(ended, error_field=field)
        return None

    def _end(self, request: RequestId, has_moved: bool = False) -> None:
        self.engine.abort(request, has_moved)
        self._forget(request)

    def _forget(self, request: RequestId) -> None:
        recipient = self._recipients.pop(request)
        requests = self._submissions[recipient.front_end, recipient.key].requests
        requests.remove(request)
        if not requests:
            del self._submissions[recipient.front_end, recipient.key]
            self._not_waiting(recipient)

    def _not_waiting(self, recipient: Recipient) -> None:
        keys = self.waiting.get(recipient.front_end, set())
        keys.discard(recipient.key)
        if not keys:
            self.waiting.pop(recipient.front_end, None)

    def _samples(self, message: Submit) -> tuple[Request, ...]:
        params = message.params
        # A restarted engine may have less room than the one that the request was checked against.
        max_output = min(message.max_output, room_after(len(message.prompt), self._limits))
        stop_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos_ids)
        lead = Request(
            id=next(self._ids),
            prompt=tuple(message.prompt),
            params=params,
            max_output=max_output,
            seed=self._draw_seed() if params.seed is None else params.seed,
            stop_ids=stop_ids,
            attributes=message.attributes,
            timeout_s=None if message.expires is None else message.expires - self.engine.clock.now(),
        )
        if params.beam_width:
            num = num_offered(params, len(stop_ids), len(message.prompt), self._limits)
            lead = replace(lead, params=replace(params, logprobs=num, temperature=0.0))  # nothing is drawn
            return lead, *(replace(lead, id=next(self._ids), sample_index=i) for i in range(1, params.beam_width))
        if params.best_of and params.logprobs is None:  # choosing the best needs their likelihoods
            params = replace(params, logprobs=0)
            lead = replace(lead, params=params)
        if params.num_samples == 1:
            return (lead,)
        others = replace(params, prompt_logprobs=None)  # the prompt is scored once, for the first sample
        more = range(1, params.num_samples)
        return lead, *(replace(lead, id=next(self._ids), params=others, sample_index=i) for i in more)


def without(message: Submit, sample: int | None) -> Submit | None:
    """The request without a sample, or None without all (`sample` None)."""
    if sample is None:
        return None
    outputs = message.outputs if message.outputs is not None else {i: [] for i in range(message.params.num_samples)}
    left = {i: tokens for i, tokens in outputs.items() if i != sample}
    return replace_fields(message, outputs=left) if left else None


def log_lost(front_end: FrontEnd, num: int) -> None:
    """Only a log line: the parent counts them in its metrics."""
    if num:
        _log.warning("%s is gone; its requests (%d) are ended", front_end.decode(errors="replace"), num)
