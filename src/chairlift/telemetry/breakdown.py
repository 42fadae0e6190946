"""The latency breakdown of one request, from a trace.

The time from its arrival to its end is cut at every change of its phase, and at the end of every step it runs through:
what the step computed names that part. Always: the parts add up to its latency.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Admitted, Event, Finished, Forked, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.telemetry.lines import AbortLine, Add, AnyLine, Arrive, Commit, Elsewhere, Fail, Leave, Plan, RollBack
from chairlift.telemetry.phases import DECODE, OVER, PROMPT, QUEUED, RECOMPUTED, SKIPPED, WAITS, after
from chairlift.telemetry.trace import Trace


@dataclass(slots=True)
class PreemptedSpan:
    start: float
    end: float
    num_computed: int
    is_swapped: bool


@dataclass(slots=True)
class RequestStep:
    """A step that computed something of the request."""

    seconds: float
    first: int
    count: int
    num_others: int
    num_prompt_tokens: int  # of others


class PlanView(NamedTuple):
    """A plan as one request sees it. Without `step`, there was nothing to compute."""

    at: float
    step: int | None
    own: tuple[int, int] | None  # start and count of its chunk
    is_decode: bool
    num_chunks: int
    num_tokens: int
    num_prompt_tokens: int  # of others
    running: int
    blocks: int


@dataclass(slots=True)
class Breakdown:
    request: RequestId
    add: Add
    end: float = 0.0
    finish: str = ""  # empty: the trace ends first
    num_tokens: int = 0
    num_cached: int = 0
    num_missed: int = 0
    has_checkpoints: bool = False  # of the states that it goes on from
    first_token: float | None = None
    source: RequestId | None = None  # the sibling that computed its prompt
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # seconds
    steps: dict[str, list[RequestStep]] = field(default_factory=dict)  # by part
    preempted: list[PreemptedSpan] = field(default_factory=list)
    num_ahead: int = 0  # waiting or preempted at its arrival
    num_running: int = 0
    passed: list[RequestId] = field(default_factory=list)  # admitted while it waited
    overtaking: list[RequestId] = field(default_factory=list)  # of those, the later arrivals
    reasons: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # seconds of waiting

    @property
    def latency_s(self) -> float:
        return self.end - self.add.at


def break_down(trace: Trace, request: RequestId) -> Breakdown:
    """Raises `InvalidConfig` when the trace does not know the request."""
    builder = BreakdownBuilder(trace.header.limits, request)
    for line in trace:
        builder.take(line)
        if builder.is_done:
            break
    if not builder.is_known:
        ids = [known for line in trace if isinstance(line, Add) for known in line.requests]
        known = f"; it has {min(ids)} to {max(ids)}" if ids else ", nor is any other"
        raise InvalidConfig(f"{trace.path}: request {request} is not in this trace{known}")
    return builder.breakdown


class BreakdownBuilder:
    """Follows one request through the lines of a trace, or through the step log of a running engine."""

    def __init__(self, limits: Limits, request: RequestId) -> None:
        self.breakdown: Breakdown  # once it is known
        self.is_known = self.is_done = False
        self._limits = limits
        self._request = request
        self._live: dict[RequestId, str] = {}  # phases
        self._later: set[RequestId] = set()  # came after it
        self._plans: dict[int, PlanView] = {}
        self._forked_at = -1.0  # when the step was planned that makes a forked sample's first token
        self._phase = QUEUED
        self._was_admitted = False  # its event has come, not only the plan that admits it
        self._since = 0.0  # up to when its time is accounted for
        self._why = "until the next step"

    def take(self, line: AnyLine) -> None:
        match line:
            case Add():
                self._add(line)
            case Plan():
                self.see(plan_view(line, self._request))
            case Commit() | Fail():
                self.end_step(line.step, line.at)
            case RollBack():
                self._plans.pop(line.step, None)
            case Leave() | Arrive() | Elsewhere():
                pass
            case _:
                self._event(line)

    def see(self, plan: PlanView) -> None:
        if self.is_known and self._phase in WAITS:
            # Its event may follow a later plan.
            self._change(self._phase if plan.own is None else PROMPT, plan.at)
            self._why = self._reason(plan)
        if plan.step is not None:
            self._plans[plan.step] = plan

    def end_step(self, step: int, at: float) -> None:
        plan = self._plans.pop(step, None)
        if plan is None or self._phase in WAITS:
            return
        if plan.own is None:
            # The last step of a prompt samples for all siblings: their first tokens come from it.
            self._account(at, PROMPT if plan.at == self._forked_at else SKIPPED)
            return
        first, count = plan.own
        part = PROMPT if first < len(self.breakdown.add.prompt) else DECODE
        if not plan.is_decode and any(span.num_computed > first for span in self.breakdown.preempted):
            part = RECOMPUTED
        computed = RequestStep(self._account(at, part), first, count, plan.num_chunks - 1, plan.num_prompt_tokens)
        self.breakdown.steps.setdefault(part, []).append(computed)

    def _add(self, line: Add) -> None:
        if self._request in line.requests:
            num_ahead = sum(phase in WAITS for phase in self._live.values())
            num_running = len(self._live) - num_ahead
            self.breakdown = Breakdown(
                self._request, line, line.at, num_running=num_running, num_ahead=num_ahead,
                has_checkpoints=self._limits.pages.has_checkpoints,
            )  # fmt: skip
            self.is_known, self._since = True, line.at
        elif self.is_known:
            self._later.update(line.requests)
        self._live.update(dict.fromkeys(line.requests, QUEUED))

    def _event(self, line: Event | AbortLine) -> None:
        request = line.request
        if self.is_known and request == self._request:
            self._own(line)
        elif self.is_known and isinstance(line, Admitted) and not self._was_admitted:
            self.breakdown.passed.append(request)
            if request in self._later:
                self.breakdown.overtaking.append(request)
        if phase := after("", line):
            self._live[request] = phase
        if phase == OVER:
            del self._live[request]

    def _own(self, line: Event | AbortLine) -> None:
        told, phase = self.breakdown, after(self._phase, line)
        if phase != self._phase:
            self._change(phase, line.at)
            self.is_done = phase == OVER
        match line:
            case Admitted():
                self._was_admitted = True
                if not told.preempted:
                    told.num_cached, told.num_missed = line.num_cached, line.num_missed
            case Forked():
                self._was_admitted = True
                if not told.num_tokens:  # else a member of a search, going on from another
                    told.source, self._forked_at = line.source, line.at
            case Preempted():
                told.preempted.append(PreemptedSpan(line.at, line.at, line.num_computed, line.is_swapped))
            case Token():
                told.num_tokens += 1
                told.first_token = line.at if told.first_token is None else told.first_token
                told.finish = "" if line.finish is None else line.finish.value
            case Finished():
                told.finish = f"{line.finish.value}: {line.message}" if line.message else line.finish.value
            case AbortLine():
                told.finish = "moved" if line.has_moved else "abort"

    def _change(self, phase: str, at: float) -> None:
        # Of running, steps have accounted for all but the time since the last one.
        self._account(at, WAITS.get(self._phase, SKIPPED))
        if phase != self._phase in WAITS and self.breakdown.preempted:
            self.breakdown.preempted[-1].end = at
        self._phase = phase

    def _account(self, until: float, part: str) -> float:
        """Adds the time up to `until` to a part; returns the seconds."""
        seconds = max(0.0, until - self._since)
        if part == QUEUED:
            self.breakdown.reasons[self._why] += seconds
        self.breakdown.parts[part] += seconds
        self._since = self.breakdown.end = max(self._since, until)
        return seconds

    def _reason(self, plan: PlanView) -> str:
        """Why the plan left it waiting."""
        limits = self._limits
        num_needed = limits.pages.num_in_prompt(len(self.breakdown.add.prompt))
        num_spare = plan.running * limits.pages.per_block  # running ones need room to grow
        if plan.running + len(self.breakdown.add.requests) > limits.max_running:
            return "the running set was full"
        if num_needed + num_spare > limits.num_blocks - plan.blocks:
            return "no memory to spare"
        if plan.num_tokens >= limits.max_step_tokens:
            return "the step was full"
        return "the rules held it back"


def plan_view(plan: Plan, request: RequestId) -> PlanView:
    index, own = next(((i, chunk[1:]) for i, chunk in enumerate(plan.chunks) if chunk[0] == request), (-1, None))
    return PlanView(
        at=plan.at,
        step=plan.step,
        own=own,
        is_decode=0 <= index < plan.num_decoding,
        num_chunks=len(plan.chunks),
        num_tokens=sum(count for _, _, count in plan.chunks),
        num_prompt_tokens=sum(count for other, _, count in plan.chunks[plan.num_decoding :] if other != request),
        running=plan.running,
        blocks=plan.blocks,
    )


def slowest(trace: Trace) -> RequestId:
    """The finished request with the highest latency."""
    arrived: dict[RequestId, float] = {}
    latencies: dict[RequestId, float] = {}
    for line in trace:
        if isinstance(line, Add):
            arrived.update(dict.fromkeys(line.requests, line.at))
        elif isinstance(line, Token) and line.finish is not None:
            latencies[line.request] = line.at - arrived.pop(line.request)
    if not latencies:
        raise InvalidConfig(f"{trace.path}: no request finishes in this trace")
    return max(latencies, key=lambda request: (latencies[request], request))
