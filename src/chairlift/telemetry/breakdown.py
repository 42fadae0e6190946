"""Where one request's time went, from a trace.

The time from its arrival to its end is cut at every change: it waits, sits and is computed by a step, sits while steps
pass it by, or has stepped off. Always: the parts add up to its latency.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Admitted, Computed, Finished, Forked, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.telemetry.lines import AbortLine, Add, AnyLine, Commit, Fail, Plan, RollBack
from chairlift.telemetry.trace import Trace

QUEUED, PROMPT, DECODE, RECOMPUTED, SKIPPED, PREEMPTED = (
    "queued",
    "prompt",
    "decoding",
    "computed again",
    "passed by",
    "stepped off",
)


@dataclass(slots=True)
class PreemptedSpan:
    """Off its seat, from one moment to another."""

    start: float
    end: float
    num_computed: int
    is_swapped: bool


@dataclass(slots=True)
class RequestStep:
    """One that computed something of the request."""

    seconds: float
    first: int
    count: int
    num_others: int
    num_prompt_tokens: int  # of others


class PlanView(NamedTuple):
    """A plan, as one request sees it. Without `step`, there was nothing to compute."""

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
    """What a trace says of one request."""

    request: RequestId
    add: Add
    end: float = 0.0
    finish: str = ""  # empty: the trace ends before it does
    num_tokens: int = 0
    num_cached: int = 0
    first_token: float | None = None
    source: RequestId | None = None  # whose prompt blocks it took over
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # seconds
    steps: dict[str, list[RequestStep]] = field(default_factory=dict)  # by part
    preempted: list[PreemptedSpan] = field(default_factory=list)
    num_ahead: int = 0  # waiting or stepped off when it came
    num_running: int = 0
    passed: list[RequestId] = field(default_factory=list)  # admitted while it waited
    overtaking: list[RequestId] = field(default_factory=list)  # of those, the ones that had come later
    reasons: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # seconds of waiting

    @property
    def latency_s(self) -> float:
        return self.end - self.add.at


def break_down(trace: Trace, request: RequestId) -> Breakdown:
    """Reads the trace once; raises `InvalidConfig` when it does not know the request."""
    builder = BreakdownBuilder(trace.header.limits, request)
    for line in trace:
        builder.take(line)
        if builder.is_done:
            break
    if builder.breakdown is None:
        raise InvalidConfig(f"{trace.path}: request {request} is not in this trace{builder.known}")
    return builder.breakdown


class BreakdownBuilder:
    """Follows one request through the lines of a trace, or through what is kept of a run while it goes on."""

    def __init__(self, limits: Limits, request: RequestId) -> None:
        self.breakdown: Breakdown | None = None
        self.is_done = False
        self._limits = limits
        self._request = request
        self._live: dict[RequestId, int] = {}  # by their place in the order of arrival
        self._num_added = 0
        self._running: set[RequestId] = set()
        self._plans: dict[int, PlanView] = {}
        self._forked_at = -1.0  # when the step was planned that makes a further sample's first token
        self._state = QUEUED
        self._was_admitted = False  # its event has come, not only the plan that seats it
        self._since = 0.0  # up to when its time is accounted for
        self._why = "until the next step"
        self._ids: list[RequestId] = []

    @property
    def known(self) -> str:
        return f"; it has {min(self._ids)} to {max(self._ids)}" if self._ids else ", nor is any other"

    def take(self, line: AnyLine) -> None:
        if isinstance(line, Add):
            self._add(line)
        elif isinstance(line, Plan):
            self.see(plan_view(line, self._request))
        elif self.breakdown is not None:
            self._follow(self.breakdown, line)
        self._track(line)

    def see(self, plan: PlanView) -> None:
        if self.breakdown is not None and self._state in (QUEUED, PREEMPTED):
            self._account(self.breakdown, plan.at, self._state)
            self._why = self._reason(self.breakdown, plan)
            if plan.own is not None:  # its event may follow a later plan
                self._enter(self.breakdown, plan.at)
        if plan.step is not None:
            self._plans[plan.step] = plan

    def _add(self, line: Add) -> None:
        if self._request in line.requests:
            self.breakdown = Breakdown(self._request, line, end=line.at, num_running=len(self._running))
            self.breakdown.num_ahead = len(self._live) - len(self._running)
            self._since = line.at
        self._ids += (line.requests[0], line.requests[-1])
        self._ids = [min(self._ids), max(self._ids)]
        self._num_added += 1
        self._live.update(dict.fromkeys(line.requests, self._num_added))

    def _track(self, line: AnyLine) -> None:
        """Who is there and who sits, whatever becomes of the request in question."""
        match line:
            case Commit() | Fail() | RollBack():
                self._plans.pop(line.step, None)
            case Admitted() | Forked():
                self._running.add(line.request)
            case Preempted():
                self._running.discard(line.request)
            case Finished() | AbortLine():
                self._leave(line.request)
            case Token() if line.finish is not None:
                self._leave(line.request)

    def _leave(self, request: RequestId) -> None:
        self._live.pop(request, None)
        self._running.discard(request)

    def _follow(self, breakdown: Breakdown, line: AnyLine) -> None:
        own = isinstance(line, (Admitted, Forked, Preempted, Token, Finished, AbortLine, Computed)) and (
            line.request == self._request
        )
        if own:
            self._own(breakdown, line)
        elif isinstance(line, Admitted) and not self._was_admitted:
            breakdown.passed.append(line.request)
            if self._live.get(line.request, 0) > self._live[self._request]:
                breakdown.overtaking.append(line.request)
        elif isinstance(line, (Commit, Fail)):
            self._step(breakdown, line)

    def _own(self, breakdown: Breakdown, line: AnyLine) -> None:
        match line:
            case Admitted() | Forked():
                self._admit(breakdown, line)
            case Preempted():
                # Its seat was of no use since the last step ended.
                self._account(breakdown, line.at, SKIPPED)
                breakdown.preempted.append(PreemptedSpan(line.at, line.at, line.num_computed, line.is_swapped))
                self._state = PREEMPTED
            case Token():
                breakdown.num_tokens += 1
                breakdown.first_token = breakdown.first_token if breakdown.first_token is not None else line.at
                if line.finish is not None:
                    self._end(breakdown, line.at, line.finish.value)
            case Finished():
                why = f": {line.message}" if line.message else ""
                self._end(breakdown, line.at, f"{line.finish.value}{why}")
            case AbortLine():
                self._end(breakdown, line.at, "abort")

    def _admit(self, breakdown: Breakdown, line: Admitted | Forked) -> None:
        if self._state in (QUEUED, PREEMPTED):
            self._account(breakdown, line.at, self._state)
            self._enter(breakdown, line.at)
        self._was_admitted = True
        if isinstance(line, Forked) and not breakdown.num_tokens:  # else a member of a search, going on from another
            breakdown.source = line.source
            self._forked_at = line.at
        elif isinstance(line, Admitted) and not breakdown.preempted:
            breakdown.num_cached = line.num_cached

    def _enter(self, breakdown: Breakdown, at: float) -> None:
        if self._state == PREEMPTED:
            breakdown.preempted[-1].end = at
        self._state = SKIPPED

    def _step(self, breakdown: Breakdown, line: Commit | Fail) -> None:
        plan = self._plans.get(line.step)
        if plan is None or self._state in (QUEUED, PREEMPTED):
            return
        if plan.own is None:
            # The last step of its prompt samples for all siblings: their first tokens come from it.
            self._account(breakdown, line.at, PROMPT if plan.at == self._forked_at else SKIPPED)
            return
        first, count = plan.own
        what = self._what(breakdown, first, plan.is_decode)
        seconds = self._account(breakdown, line.at, what)
        step = RequestStep(seconds, first, count, plan.num_chunks - 1, plan.num_prompt_tokens)
        breakdown.steps.setdefault(what, []).append(step)

    def _what(self, breakdown: Breakdown, first: int, is_decode: bool) -> str:
        if not is_decode and any(span.num_computed > first for span in breakdown.preempted):
            return RECOMPUTED
        return PROMPT if first < len(breakdown.add.prompt) else DECODE

    def _account(self, breakdown: Breakdown, until: float, part: str) -> float:
        """The time up to `until` was spent on this; how long that is."""
        seconds = max(0.0, until - self._since)
        if part in (QUEUED, PREEMPTED):
            breakdown.reasons[self._why] += seconds if part == QUEUED else 0.0
        breakdown.parts[part] += seconds
        self._since = breakdown.end = max(self._since, until)
        return seconds

    def _reason(self, breakdown: Breakdown, plan: PlanView) -> str:
        """Why the step that was just planned left it waiting."""
        limits = self._limits
        num_needed = -(-len(breakdown.add.prompt) // limits.block_size)
        if plan.running + len(breakdown.add.requests) > limits.max_running:
            return "no free seat"
        if num_needed + plan.running > limits.num_blocks - plan.blocks:  # running ones need room to grow
            return "no memory to spare"
        if plan.num_tokens >= limits.max_step_tokens:
            return "the step was full"
        return "the rules held it back"

    def _end(self, breakdown: Breakdown, at: float, finish: str) -> None:
        self._account(breakdown, at, self._state)
        if self._state == PREEMPTED:
            breakdown.preempted[-1].end = at
        breakdown.finish = finish
        self.is_done = True


def plan_view(plan: Plan, request: RequestId) -> PlanView:
    place = next((i for i, chunk in enumerate(plan.chunks) if chunk[0] == request), None)
    own = None if place is None else plan.chunks[place][1:]
    return PlanView(
        at=plan.at,
        step=plan.step,
        own=own,
        is_decode=place is not None and place < plan.num_decoding,
        num_chunks=len(plan.chunks),
        num_tokens=sum(count for _, _, count in plan.chunks),
        num_prompt_tokens=sum(count for other, _, count in plan.chunks[plan.num_decoding :] if other != request),
        running=plan.running,
        blocks=plan.blocks,
    )


def slowest(trace: Trace) -> RequestId:
    """Of those that ended well, the one that took longest."""
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
