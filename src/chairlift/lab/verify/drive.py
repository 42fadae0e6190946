"""Runs requests through an engine on a script: at which step each arrives, and after how many it is aborted.

Returns every sample's tokens and logits, and how often the scheduler did what.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chairlift.core.engine import Engine
from chairlift.core.errors import ChairliftError
from chairlift.core.events import Admitted, Computed, Event, Finished, Forked, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Runner
from chairlift.core.request import FinishReason, Request
from chairlift.lab.verify.output import Keep, Outputs, SampleOutput, Wanted, keep
from chairlift.runner.hooks import LogitsRecorder, LogitsRow, ShowsLogits

MIXED = "steps of several adapters"  # or of the base and one, as `WorldResult.happened` names them


class ScriptedRequest(NamedTuple):
    """Samples of one prompt."""

    samples: tuple[Request, ...]
    arrives: int = 0  # step
    aborted_after: int | None = None  # steps


@dataclass(slots=True)
class WorldResult:
    outputs: Outputs = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class OtherDepth:
    """A runner with another number of plans in flight."""

    runner: Runner
    depth: int

    def submit(self, plan: StepPlan) -> None:
        self.runner.submit(plan)

    def collect(self) -> StepResult:
        return self.runner.collect()


def drive(
    engine: Engine, runner: ShowsLogits, script: Sequence[ScriptedRequest], wanted: Wanted, keep: Keep = keep
) -> WorldResult:
    """Runs until all have ended and keeps the outputs of `wanted`. `runner` is the innermost one of the engine."""
    result = WorldResult()
    seen = LogitsRecorder(lambda request, _: request in wanted)
    lengths = {request.id: len(request.prompt) for entry in script for request in entry.samples}
    result.outputs = {key: SampleOutput(lengths[request]) for request, key in wanted.items()}
    runner.on_logits = seen
    try:
        unsettled: list[LogitsRow] = []
        for _ in _run(engine, script, wanted, result):
            unsettled = _settle([*unsettled, *seen.take(is_waiting=False)], wanted, result, keep)
        _settle([*unsettled, *seen.take()], wanted, result, keep)
    finally:
        runner.on_logits = None
    return result


def _settle(rows: list[LogitsRow], wanted: Wanted, result: WorldResult, keep: Keep) -> list[LogitsRow]:
    """Keeps rows once their token is known and returns the others. Some never are: rows after the text had ended."""
    unsettled = []
    for found in rows:
        output = result.outputs[wanted[found.request]]
        if output.has_token_after(found.position):
            keep(output, found.position, found.row)
        else:
            unsettled.append(found)
    return unsettled


def _run(engine: Engine, script: Sequence[ScriptedRequest], wanted: Wanted, result: WorldResult) -> Iterator[None]:
    """Pauses after every step."""
    arriving = sorted(script, key=lambda entry: entry.arrives)
    aborting: dict[int, list[RequestId]] = {}
    chunks: Counter[RequestId] = Counter()
    step = 0
    while arriving or engine.has_work:
        while arriving and (arriving[0].arrives <= step or not engine.has_work):
            entry = arriving.pop(0)
            engine.add(entry.samples)
            if entry.aborted_after is not None:
                aborting.setdefault(step + entry.aborted_after, []).extend(request.id for request in entry.samples)
        for request in aborting.pop(step, ()):
            result.happened["aborted"] += request in engine.scheduler.live
            engine.abort(request)
        for event in engine.step():
            _take(event, wanted, result, chunks)
        adapters = {progress.request.attributes.adapter for progress in engine.scheduler.running.values()}
        result.happened[MIXED] += len(adapters) > 1
        result.happened["full steps"] += len(engine.scheduler.running) >= 0.9 * engine.scheduler.limits.max_running
        step += 1
        yield
    result.happened["prompts cut"] = sum(count > 1 for count in chunks.values())


def _take(event: Event, wanted: Wanted, result: WorldResult, chunks: Counter[RequestId]) -> None:
    """Counts events of the wanted; of neighbours only failures and forks."""
    happened = result.happened
    match event:
        case Finished(finish=FinishReason.ERROR):
            raise ChairliftError(f"a request failed while it was verified: {event.message}")
        case Forked() if event.request not in wanted:
            happened["neighbours forked"] += 1
        case _ if event.request not in wanted:
            pass
        case Token():
            result.outputs[wanted[event.request]].tokens.append(event.token)
        case Preempted():
            happened["swapped" if event.is_swapped else "computed again"] += 1
        case Admitted():
            happened["prefixes found"] += event.num_cached > 0
        case Forked():
            happened["forked"] += 1
        case Computed():
            chunks[event.request] += 1
