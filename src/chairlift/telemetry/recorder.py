"""Writes a trace file while an engine runs.

Always: only its user can read the file, which holds prompts. It lags by a second at most, and not at all once the
engine is idle. A file that cannot be written any more ends the recording with a warning, never the run.
"""

import logging
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec.structs import replace

from chairlift.config.scheduler import Rules
from chairlift.config.version import VERSION as RELEASE
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Admitted, Embedded, Event, Preempted, Queued, RuleFailed, Shrunk
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policy import Service
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.telemetry.lines import (
    AbortLine,
    Add,
    Arrive,
    Commit,
    Elsewhere,
    Fail,
    Header,
    Leave,
    Plan,
    RollBack,
    line_of,
)
from chairlift.telemetry.mapped import create_private
from chairlift.telemetry.trace import digest

_log = logging.getLogger(__name__)
_FLUSH_S = 1.0
_FLUSH_BYTES = 1 << 16
_EARLY = (Queued, Admitted, Preempted, RuleFailed, Shrunk)  # told before their commit


class Recorder:
    """An engine's observer that writes inputs and events."""

    def __init__(
        self, path: Path, scheduler: Scheduler, rules: Rules, model: str, clock: str, depth: int,
        delay: Callable[[Request], float] | None = None,
    ) -> None:  # fmt: skip
        """`delay`: how long before it was added a client sent a request."""
        self._path = path
        self._delay = delay
        self._scheduler = scheduler
        self._encode = msgspec.json.Encoder().encode_into
        self._buffer = bytearray()
        self._flushed = 0.0
        # An engine tells a step's events after its commit. Those of its planning go before the commit.
        self._held: Commit | Fail | None = None
        try:
            self._file = create_private(path)
        except OSError as error:
            raise InvalidConfig(f"{path}: cannot be written: {error.strerror or error}") from error
        limits = scheduler.limits
        self._write(Header(chairlift=RELEASE, model=model, clock=clock, depth=depth, limits=limits, rules=rules))

    def close(self) -> None:
        """Writes the scheduler's remaining events, then closes the file."""
        self.happened(self._scheduler.take_events())
        self._flush()
        self._file.close()

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        self._write(_add(samples, now, None if self._delay is None else self._delay(samples[0]) or None))

    def aborted(self, request: RequestId, now: float, has_moved: bool) -> None:
        self._write(AbortLine(now, request, has_moved))

    def leaving(self, request: RequestId, now: float) -> None:
        self._write(Leave(now, request))

    def arrived(self, request: RequestId, is_whole: bool, now: float) -> None:
        self._write(Arrive(now, request, is_whole))

    def served_elsewhere(self, services: Sequence[Service], now: float) -> None:
        self._write(Elsewhere(now, list(services)))

    def planned(self, plan: StepPlan | None, now: float) -> None:
        scheduler = self._scheduler
        line = Plan(
            at=now,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            preempted=len(scheduler.preempted),
            blocks=scheduler.pool.num_held,
            blocks_saved=scheduler.pool.num_shared,
        )
        if plan is not None:
            line = replace(
                line,
                step=plan.step,
                digest=digest(plan),
                num_decodes=plan.num_decodes,
                chunks=[(chunk.request.id, chunk.start, chunk.count) for chunk in plan.chunks],
                drafts={c.request.id: list(c.drafts) for c in plan.chunks[plan.num_decodes :] if c.drafts},
                num_copies=len(plan.copies),
                num_swap_outs=len(plan.swap_outs),
                num_swap_ins=len(plan.swap_ins),
            )
        self._write(line)

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None:
        searching = [r.id for chunk in plan.chunks for r in chunk.samples if r.params.beam_width]
        beams = {r: list(result.scores[r].top) for r in searching if r not in result.failed}
        more = {request: [sampled.token for sampled in tokens] for request, tokens in result.more.items()}
        tokens = list(result.tokens)
        self._hold(Commit(at=now, step=plan.step, tokens=tokens, more=more, beams=beams, failed=result.failed))

    def failed(self, plan: StepPlan, message: str, now: float) -> None:
        self._hold(Fail(now, plan.step, message))

    def rolled_back(self, plan: StepPlan, message: str, now: float) -> None:
        self._write(RollBack(now, plan.step, message))

    def happened(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Embedded):  # numbers by the thousand, which tell nothing of scheduling
                continue
            if self._held is not None and not (isinstance(event, _EARLY) or event.at < self._held.at):
                self._release()
            self._append(line_of(event))
        self._release()
        if events and (not self._scheduler.live or not 0 <= events[-1].at - self._flushed < _FLUSH_S):
            self._flushed = events[-1].at
            self._flush()

    def _hold(self, line: Commit | Fail) -> None:
        self._release()
        self._held = line

    def _release(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._append(held)

    def _write(self, line: msgspec.Struct) -> None:
        self._release()
        self._append(line)

    def _append(self, line: msgspec.Struct) -> None:
        if not self._file.closed:
            self._encode(line, self._buffer, -1)
            self._buffer += b"\n"
            if len(self._buffer) > _FLUSH_BYTES:
                self._flush()

    def _flush(self) -> None:
        if self._file.closed:
            return
        buffer, self._buffer = memoryview(self._buffer), bytearray()
        try:
            while buffer:
                buffer = buffer[self._file.write(buffer) :]
        except OSError as error:
            _log.warning("the trace ends here: %s cannot be written: %s", self._path, error.strerror or error)
            self._file.close()


def _add(samples: tuple[Request, ...], now: float, delay_s: float | None) -> Add:
    lead = samples[0]
    params, attributes = lead.params, lead.attributes.given
    if salt := attributes.get("cache_salt"):  # a known salt allows probing for the prompts under it
        attributes["cache_salt"] = blake2b(salt.encode(), digest_size=8).hexdigest()
    return Add(
        at=now,
        delay_s=delay_s,
        requests=[request.id for request in samples],
        prompt=list(lead.prompt),
        output=list(lead.output),
        num_moved=lead.num_moved,
        max_output=lead.max_output,
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        n=params.n,
        beam_width=params.beam_width,
        length_penalty=params.length_penalty,
        prompt_logprobs=params.prompt_logprobs,
        stop_ids=sorted(lead.stop_ids),
        attributes=attributes,
        timeout_s=lead.timeout_s,
    )
