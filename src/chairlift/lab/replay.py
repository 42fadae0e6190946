"""Replays a trace: the scheduler is told again what it was told, at the times it was told, and must decide the same.

Whatever the first run was, live on a device or simulated, a replay needs neither model nor clock: times and sampled
tokens come from the trace. Any difference is a decision that did not depend on the scheduler's inputs alone.
"""

from collections import deque
from dataclasses import dataclass

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.scheduler import Scheduler
from chairlift.core.score import TokenScore
from chairlift.sim.setup import make_scheduler
from chairlift.telemetry.digest import digest
from chairlift.telemetry.lines import Abort, Add, AnyLine, Commit, EventLine, Fail, Plan, PutBack, line_of
from chairlift.telemetry.trace import Trace, samples_of


@dataclass(frozen=True, slots=True)
class Replayed:
    num_steps: int
    num_events: int
    difference: str | None  # the first one, if any


class _Differs(Exception):
    pass


def replay(trace: Trace, scheduler: Scheduler | None = None) -> Replayed:
    """On a new scheduler with the rules that the trace names, unless one is given."""
    repeat = _Repeat(scheduler or make_scheduler(trace.header.limits, trace.header.rules))
    for number, line in trace.numbered():
        try:
            repeat.take(line)
        except _Differs as difference:
            return Replayed(repeat.num_steps, repeat.num_events, f"line {number}: {difference}")
        except (KeyError, ValueError, IndexError, StopIteration) as error:
            raise InvalidConfig(f"{trace.path}, line {number}: does not follow from the lines before it") from error
    return Replayed(repeat.num_steps, repeat.num_events, None)


class _Repeat:
    def __init__(self, scheduler: Scheduler) -> None:
        self.num_steps = self.num_events = 0
        self._scheduler = scheduler
        self._plans: dict[int, StepPlan] = {}
        self._lines: deque[EventLine] = deque()

    def take(self, line: AnyLine) -> None:
        match line:
            case Add():
                self._scheduler.add(samples_of(line), line.at)
            case Abort():
                self._scheduler.abort(line.request, line.at)
            case Plan():
                self._plan(line)
            case Commit():
                plan = self._plans.pop(line.step)
                self._scheduler.commit(plan, _result(plan, line), line.at)
            case Fail():
                self._scheduler.fail(self._plans.pop(line.step), line.message, line.at)
            case PutBack():
                self._scheduler.put_back(self._plans.pop(line.step), line.message, line.at)
            case _:
                self._event(line)

    def _plan(self, line: Plan) -> None:
        plan = self._scheduler.schedule(line.at)
        if plan is not None:
            self._plans[plan.step] = plan
            self.num_steps += 1
        if (None if plan is None else digest(plan)) != (line.digest or None):
            raise _Differs(f"the plan was {_recorded(line)}, now it is {_shown(plan)}")

    def _event(self, line: EventLine) -> None:
        if not self._lines:
            self._lines.extend(map(line_of, self._scheduler.take_events()))
        found = self._lines.popleft() if self._lines else None
        if found != line:
            raise _Differs(f"the event was {line}, now it is {found}")
        self.num_events += 1


def _result(plan: StepPlan, line: Commit) -> StepResult:
    if len(line.tokens) != sum(len(chunk.samples) for chunk in plan.chunks):
        raise ValueError("another number of tokens than the plan samples")
    offers = {request: TokenScore(0, 0.0, 0.0, 1, tuple(top)) for request, top in line.beams.items()}
    prompt_scores: dict[RequestId, tuple[TokenScore, ...]] = {}
    for chunk in plan.chunks:
        if chunk.request.params.prompt_logprobs is not None:
            tokens = chunk.request.prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
            prompt_scores[chunk.request.id] = tuple(TokenScore(token, 0.0, 0.0, 1, ()) for token in tokens)
    return StepResult(plan.step, line.tokens, offers, prompt_scores, line.failed)


def _recorded(line: Plan) -> str:
    return "nothing" if line.step is None else _words(line.step, line.num_decodes, line.chunks)


def _shown(plan: StepPlan | None) -> str:
    if plan is None:
        return "nothing"
    return _words(plan.step, plan.num_decodes, [(c.request.id, c.start, c.count) for c in plan.chunks])


def _words(step: int, num_decodes: int, chunks: list[tuple[RequestId, int, int]]) -> str:
    prompts = ", ".join(
        f"{start}-{start + count} of request {request}" for request, start, count in chunks[num_decodes:]
    )
    decoding = " ".join(str(request) for request, _, _ in chunks[:num_decodes])
    return f"step {step} (decoding: {decoding or 'nobody'}; prompts: {prompts or 'none'})"
