"""None"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from chairlift.config.scheduler import Rules, make_scheduler
from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import Sampled, StepPlan, StepResult
from chairlift.core.policy import Service
from chairlift.core.ports import Drafter, RunnerFailed, RunnerFull
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.core.score import TokenScore
from chairlift.lab.sim.drive import arrive
from chairlift.lab.sim.runner import VirtualClock
from chairlift.telemetry.lines import (
    AbortLine,
    Add,
    Arrive,
    Commit,
    Elsewhere,
    Fail,
    Input,
    Leave,
    Plan,
    RollBack,
    TraceLine,
    line_of,
)
from chairlift.telemetry.trace import Trace, digest, samples_of


class EndOfTrace(Exception):
    """The trace ends here; the run that wrote it may have been cut off."""


class TraceScript:
    """The lines of a trace as a script: the scheduler's inputs and events, apart, each in order.

    Lines are read on demand; only those between the next input and the next event are held.
    """

    def __init__(self, trace: Trace) -> None:
        self._lines = trace.numbered()
        self._inputs: deque[tuple[int, Input]] = deque()
        self._events: deque[tuple[int, Event]] = deque()
        self.number = 1  # of the line that was taken last

    @property
    def next_number(self) -> int:
        """Of the next input, if it was read already."""
        return self._inputs[0][0] if self._inputs else self.number

    def peek(self, ahead: int = 0) -> Input | None:
        """The next input, or one after it; None at the end."""
        while len(self._inputs) <= ahead:
            if not self._read():
                return None
        return self._inputs[ahead][1]

    def take(self) -> None:
        """Removes the input that was peeked at."""
        self.number, _ = self._inputs.popleft()

    def take_event(self) -> Event:
        while not self._events:
            if not self._read():
                raise EndOfTrace
        self.number, event = self._events.popleft()
        return event

    def _read(self) -> bool:
        number, line = next(self._lines, (0, None))
        if isinstance(line, Input):
            self._inputs.append((number, line))
        elif line is not None:
            self._events.append((number, line))
        return line is not None


T = TypeVar("T", bound=TraceLine)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Replays a trace in the simulator: the engine on a virtual clock, with a runner that takes the recorded time and
    samples the recorded tokens. Every plan and every event must be the same again.

    A replay needs no model, of live and simulated runs alike: arrivals, durations and tokens come from the trace.
    Any difference is a decision that did not depend on these alone.

        line of the trace   add  plan  commit          plan ...
        virtual clock        |----|------|--------------|      stands at each recorded moment, and nowhere else
    """

    num_steps: int
    num_events: int
    difference: str | None  # the first one, if any


class _Differs(Exception):
    pass


def replay(trace: Trace, make: Callable[[Limits, Rules, Drafter | None], Scheduler] = make_scheduler) -> Replayed:
    """Runs a new scheduler with the trace's limits, rules and drafts."""
    script, header, difference = TraceScript(trace), trace.header, None
    drafter = _Drafts(script) if header.limits.max_drafts else None
    rerun = _Rerun(script, make(header.limits, header.rules, drafter), header.depth)
    try:
        rerun.run()
    except _Differs as found:
        difference = f"line {script.number}: {found}"
    except (KeyError, ValueError, IndexError) as error:
        number = script.next_number
        raise InvalidConfig(f"{trace.path}, line {number}: does not follow from the lines before it") from error
    return Replayed(rerun.num_steps, rerun.num_events, difference)


class _Drafts:
    """Drafts what the next recorded plan has."""

    def __init__(self, script: TraceScript) -> None:
        self._script = script

    def draft(self, request: Request, tokens: Sequence[int], count: int) -> Sequence[int]:
        line = self._script.peek()
        return line.drafts.get(request.id, ()) if isinstance(line, Plan) else ()


class _Rerun:
    """The runner of the recorded run, and an observer that compares."""

    def __init__(self, script: TraceScript, scheduler: Scheduler, depth: int) -> None:
        self.depth = depth
        self.num_steps = self.num_events = 0
        self._script = script
        self._clock = VirtualClock()
        self._engine = Engine(scheduler, self, self._clock, self)
        self._in_flight: deque[StepPlan] = deque()

    def run(self) -> None:
        try:
            while (line := self._script.peek()) is not None:
                self._clock.advance_to(line.at)
                match line:
                    case Add():
                        arrive(self._engine, samples_of(line), line.at)
                    case AbortLine():
                        self._engine.abort(line.request, line.has_moved)
                    case Leave():
                        self._engine.leave(line.request)
                    case Arrive():
                        self._engine.arrive(line.request, line.is_whole)
                    case Elsewhere():
                        self._engine.served_elsewhere(line.services)
                    case Plan():
                        self._engine.begin()  # requests may have been added between its plan and the next
                        if self._script.peek() is line:
                            self._engine.step()
                    case _:
                        raise ValueError("a step ended that was not in flight")
            self.happened(self._engine.scheduler.take_events())
            raise _Differs(f"the event was {self._script.take_event()}, now it is None")
        except EndOfTrace:
            pass

    def submit(self, plan: StepPlan) -> None:
        match self._script.peek():
            case RollBack(step=plan.step, message=message):
                raise RunnerFull(message)
            # If the next step was planned right away it does not matter whether this one failed here or later.
            case Fail(step=plan.step, message=message) if isinstance(self._script.peek(1), Plan):
                raise RunnerFailed(message)
        self._in_flight.append(plan)

    def collect(self) -> StepResult:
        plan = self._in_flight.popleft()
        match self._script.peek():
            case Commit(step=plan.step) as line:
                return _result(plan, line)
            case Fail(step=plan.step, message=message):
                raise RunnerFailed(message)
            case None:
                raise EndOfTrace
        raise ValueError("the oldest step in flight did not end first")

    def planned(self, plan: StepPlan | None, now: float) -> None:
        line = self._over(Plan, now)
        if (None if plan is None else digest(plan)) != (line.digest or None):
            chunks = [] if plan is None else [(c.request.id, c.start, c.count) for c in plan.chunks]
            now_it_is = "nothing" if plan is None else _shown(plan.step, plan.num_decoding, chunks)
            raise _Differs(f"the plan was {_shown(line.step, line.num_decoding, line.chunks)}, now it is {now_it_is}")
        self.num_steps += plan is not None

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        self._over(Add, now)

    def aborted(self, request: RequestId, now: float, has_moved: bool) -> None:
        self._over(AbortLine, now)

    def leaving(self, request: RequestId, now: float) -> None:
        self._over(Leave, now)

    def arrived(self, request: RequestId, is_whole: bool, now: float) -> None:
        self._over(Arrive, now)

    def served_elsewhere(self, services: Sequence[Service], now: float) -> None:
        self._over(Elsewhere, now)

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None:
        self._over(Commit, now)

    def failed(self, plan: StepPlan, message: str, now: float) -> None:
        self._over(Fail, now)

    def rolled_back(self, plan: StepPlan, message: str, now: float) -> None:
        self._over(RollBack, now)

    def happened(self, events: Sequence[Event]) -> None:
        for event in events:
            recorded = self._script.take_event()
            if line_of(event) != line_of(recorded):  # without scores, and told apart by their types
                raise _Differs(f"the event was {recorded}, now it is {event}")
            self.num_events += 1

    def _over(self, kind: type[T], now: float) -> T:
        """Takes the next recorded line, which has happened again, and advances the clock to the one after it."""
        line = self._script.peek()
        if line is None:
            raise EndOfTrace
        if not isinstance(line, kind) or line.at != now:
            raise ValueError("another thing was done, or at another time")
        self._script.take()
        if (following := self._script.peek()) is not None:
            self._clock.advance_to(following.at)
        return line


def _result(plan: StepPlan, line: Commit) -> StepResult:
    if len(line.tokens) != sum(len(chunk.samples) for chunk in plan.chunks):
        raise ValueError("another number of tokens than the plan samples")
    offers = {request: TokenScore(0, 0.0, 0.0, 1, tuple(top)) for request, top in line.beams.items()}
    prompt_scores: dict[RequestId, tuple[TokenScore, ...]] = {}
    for chunk in plan.chunks:
        if chunk.request.params.prompt_logprobs is not None:
            tokens = chunk.request.prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
            prompt_scores[chunk.request.id] = tuple(TokenScore(token, 0.0, 0.0, 1, ()) for token in tokens)
    more = {request: [Sampled(token) for token in tokens] for request, tokens in line.more.items()}
    return StepResult(plan.step, line.tokens, offers, prompt_scores, line.failed, more)


def _shown(step: int | None, num_decoding: int, chunks: list[tuple[RequestId, int, int]]) -> str:
    if step is None:
        return "nothing"
    prompts = ", ".join(f"{start}-{start + count} of request {id}" for id, start, count in chunks[num_decoding:])
    # +n: with n drafts.
    decoding = " ".join(f"{request}" + f"+{count - 1}" * (count > 1) for request, _, count in chunks[:num_decoding])
    return f"step {step} (decoding: {decoding or 'none'}; prompts: {prompts or 'none'})"
