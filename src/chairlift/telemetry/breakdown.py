"""The latency breakdown of one request, from a trace.

The time from its arrival to its end is cut at every change: it is queued, computed by a step, running while steps pass
it by, or preempted. Always: the parts add up to its latency.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Admitted, Finished, Forked, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.telemetry.lines import AbortLine, Add, AnyLine, Commit, Fail, Plan, RollBack
from chairlift.telemetry.trace import Trace

QUEUED, PROMPT, DECODE = "queued", "prompt", "decoding"
RECOMPUTED, SKIPPED, PREEMPTED = "computed again", "passed by", "preempted"


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
        self._live: dict[RequestId, int] = {}  # order of arrival
        self._num_added = 0
        self._running: set[RequestId] = set()
        self._plans: dict[int, PlanView] = {}
        self._forked_at = -1.0  # when the step was planned that makes a forked sample's first token
        self._state = QUEUED
        self._was_admitted = False  # its event has come, not only the plan that admits it
        self._since = 0.0  # up to when its time is accounted for
        self._why = "until the next step"

    def take(self, line: AnyLine) -> None:
        if isinstance(line, Add):
            self._add(line)
        elif isinstance(line, Plan):
            self.see(plan_view(line, self._request))
        elif self.is_known:
            self._follow(line)
        self._track(line)

    def see(self, plan: PlanView) -> None:
        if self.is_known and self._state in (QUEUED, PREEMPTED):
            self._account(plan.at, self._state)
            self._why = self._reason(plan)
            if plan.own is not None:  # its event may follow a later plan
                self._enter(plan.at)
        if plan.step is not None:
            self._plans[plan.step] = plan

    def _add(self, line: Add) -> None:
        if self._request in line.requests:
            num_running = len(self._running)
            num_ahead = len(self._live) - num_running
            self.breakdown = Breakdown(self._request, line, line.at, num_running=num_running, num_ahead=num_ahead)
            self.is_known, self._since = True, line.at
        self._num_added += 1
        self._live.update(dict.fromkeys(line.requests, self._num_added))

    def _track(self, line: AnyLine) -> None:
        """Keeps the sets of live and running requests."""
        match line:
            case Commit() | Fail() | RollBack():
                self._plans.pop(line.step, None)
            case Admitted() | Forked():
                self._running.add(line.request)
            case Preempted():
                self._running.discard(line.request)
            case Finished() | AbortLine() | Token() if not isinstance(line, Token) or line.finish is not None:
                self._live.pop(line.request, None)
                self._running.discard(line.request)

    def _follow(self, line: AnyLine) -> None:
        if getattr(line, "request", None) == self._request:
            self._own(line)
        elif isinstance(line, Admitted) and not self._was_admitted:
            self.breakdown.passed.append(line.request)
            if self._live.get(line.request, 0) > self._live[self._request]:
                self.breakdown.overtaking.append(line.request)
        elif isinstance(line, (Commit, Fail)):
            self._step(line)

    def _own(self, line: AnyLine) -> None:
        match line:
            case Admitted() | Forked():
                self._admit(line)
            case Preempted():
                # It ran for nothing since the last step ended.
                self._account(line.at, SKIPPED)
                self.breakdown.preempted.append(PreemptedSpan(line.at, line.at, line.num_computed, line.is_swapped))
                self._state = PREEMPTED
            case Token():
                self.breakdown.num_tokens += 1
                if self.breakdown.first_token is None:
                    self.breakdown.first_token = line.at
                if line.finish is not None:
                    self._end(line.at, line.finish.value)
            case Finished():
                why = f": {line.message}" if line.message else ""
                self._end(line.at, f"{line.finish.value}{why}")
            case AbortLine():
                self._end(line.at, "moved" if line.has_moved else "abort")

    def _admit(self, line: Admitted | Forked) -> None:
        if self._state in (QUEUED, PREEMPTED):
            self._account(line.at, self._state)
            self._enter(line.at)
        self._was_admitted = True
        if (
            isinstance(line, Forked) and not self.breakdown.num_tokens
        ):  # else a member of a search, going on from another
            self.breakdown.source = line.source
            self._forked_at = line.at
        elif isinstance(line, Admitted) and not self.breakdown.preempted:
            self.breakdown.num_cached = line.num_cached

    def _enter(self, at: float) -> None:
        if self._state == PREEMPTED:
            self.breakdown.preempted[-1].end = at
        self._state = SKIPPED

    def _step(self, line: Commit | Fail) -> None:
        plan = self._plans.get(line.step)
        if plan is None or self._state in (QUEUED, PREEMPTED):
            return
        if plan.own is None:
            # The last step of a prompt samples for all siblings: their first tokens come from it.
            self._account(line.at, PROMPT if plan.at == self._forked_at else SKIPPED)
            return
        first, count = plan.own
        part = PROMPT if first < len(self.breakdown.add.prompt) else DECODE
        if not plan.is_decode and any(span.num_computed > first for span in self.breakdown.preempted):
            part = RECOMPUTED
        step = RequestStep(self._account(line.at, part), first, count, plan.num_chunks - 1, plan.num_prompt_tokens)
        self.breakdown.steps.setdefault(part, []).append(step)

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
        num_needed = limits.windows.num_prompt_pages(len(self.breakdown.add.prompt))
        num_spare = plan.running * limits.windows.pages_per_block  # running ones need room to grow
        if plan.running + len(self.breakdown.add.requests) > limits.max_running:
            return "the running set was full"
        if num_needed + num_spare > limits.num_blocks - plan.blocks:
            return "no memory to spare"
        if plan.num_tokens >= limits.max_step_tokens:
            return "the step was full"
        return "the rules held it back"

    def _end(self, at: float, finish: str) -> None:
        self._account(at, self._state)
        if self._state == PREEMPTED:
            self.breakdown.preempted[-1].end = at
        self.breakdown.finish = finish
        self.is_done = True


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
    worst: tuple[float, RequestId] | None = None
    for line in trace:
        if isinstance(line, Add):
            arrived.update(dict.fromkeys(line.requests, line.at))
        elif isinstance(line, Token) and line.finish is not None:
            latency = line.at - arrived.pop(line.request)
            worst = max(worst or (latency, line.request), (latency, line.request))
        elif isinstance(line, Finished):
            arrived.pop(line.request, None)
    if worst is None:
        raise InvalidConfig(f"{trace.path}: no request finishes in this trace")
    return worst[1]
