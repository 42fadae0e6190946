"""The steps of the last minutes, for latency breakdowns while the engine runs.

A step's record costs the same however many requests decode in it: which ones decode follows from the other records, as
a running request whose prompt is computed is in every step that decodes. Only a step without room for all decodes
(after one that did not fit the runner's memory) names those it has. Members of searches, and drafts with several steps
in flight, may come out a little wrong.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from chairlift.core import events
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan
from chairlift.telemetry.breakdown import Breakdown, BreakdownBuilder, PlanView
from chairlift.telemetry.lines import AbortLine, Add, Fail, RollBack
from chairlift.telemetry.watch.bars import BarRow

MAX_RECORDS = 60_000
PromptChunk = tuple[RequestId, int, int, bool]  # request, start, count, whether it samples


class PlanRecord(NamedTuple):
    at: float
    step: int | None  # None: there was nothing to compute
    num_chunks: int
    num_decoding: int
    num_tokens: int
    running: int
    blocks: int
    prompts: tuple[PromptChunk, ...]
    num_drafts: dict[RequestId, int]
    decoding: tuple[RequestId, ...] | None  # None: all that can


class CommitRecord(NamedTuple):
    at: float
    step: int


StepRecord = PlanRecord | CommitRecord | Fail | RollBack | AbortLine | events.Event


class StepLog:
    def __init__(self) -> None:
        self.total = 0  # records so far
        self._records: deque[StepRecord] = deque(maxlen=MAX_RECORDS)

    def add(self, record: StepRecord) -> None:
        self._records.append(record)
        self.total += 1

    def add_plan(self, plan: StepPlan | None, budget: int, running: int, blocks: int, now: float) -> None:
        """`budget`: how many tokens the step might have."""
        if plan is None:
            self.add(PlanRecord(now, None, 0, 0, 0, running, blocks, (), {}, None))
            return
        prompts = tuple((c.request.id, c.start, c.count, bool(c.samples)) for c in plan.chunks[plan.num_decoding :])
        num_drafts = {c.request.id: len(c.drafts) for c in plan.chunks[plan.num_decodes : plan.num_decoding]}
        decoding = None
        if plan.num_decoding == budget < running:
            decoding = tuple(chunk.request.id for chunk in plan.chunks)
        sizes = len(plan.chunks), plan.num_decoding, plan.num_tokens
        self.add(PlanRecord(now, plan.step, *sizes, running, blocks, prompts, num_drafts, decoding))

    def since(self, mark: int) -> Iterator[StepRecord] | None:
        """The records after the first `mark`; None when some of them are gone."""
        start = mark - (self.total - len(self._records))
        return None if start < 0 else islice(self._records, start, None)


def break_down(log: StepLog, row: BarRow, limits: Limits) -> Breakdown | None:
    """The latency breakdown up to now; None when the request began too long ago."""
    records = log.since(row.mark)
    if records is None:
        return None
    reader = _LogReader(row, limits)
    for record in records:
        reader.take(record)
        if reader.builder.is_done:
            break
    breakdown = reader.builder.breakdown
    breakdown.num_running, breakdown.num_ahead = row.num_running, row.num_ahead
    breakdown.num_tokens, breakdown.first_token = row.num_output, row.first
    return breakdown


class _LogReader:
    """Feeds the records to a builder, as one request sees them."""

    def __init__(self, row: BarRow, limits: Limits) -> None:
        request = row.progress.request
        self.builder = BreakdownBuilder(limits, request.id)
        self._id = request.id
        self._num_prompt = len(request.prompt)
        self._num_computed = 0
        self._num_known = len(request.prompt) + len(request.output)  # when it last began to wait
        self._is_decoding = False
        self._is_waiting = True  # was never admitted
        self._open: dict[int, PlanRecord] = {}
        self._arrival = row.progress.arrival
        self._later: set[RequestId] = set()  # later arrivals
        prompt = [0] * self._num_prompt  # only its length counts
        self.builder.take(Add(at=self._arrival, requests=list(row.siblings), prompt=prompt, max_output=0))

    def take(self, record: StepRecord) -> None:
        if isinstance(record, PlanRecord):
            if record.step is not None:
                self._open[record.step] = record
            self.builder.see(self._plan_view(record))
        elif isinstance(record, CommitRecord | Fail | RollBack):
            plan = self._open.pop(record.step, None)
            if plan is None and not self._is_waiting:  # planned before it came
                self.builder.see(PlanView(record.at, record.step, None, False, 0, 0, 0, 0, 0))
            elif plan is not None and isinstance(record, RollBack):
                self._roll_back(plan)
            if isinstance(record, RollBack):
                self.builder.take(record)
            else:
                self.builder.end_step(record.step, record.at)
        elif record.request == self._id:
            self._own(record)
        elif self._is_waiting:
            if isinstance(record, events.Queued) and record.at > self._arrival:
                self._later.add(record.request)
            elif isinstance(record, events.Admitted):
                if record.request in self._later:
                    self.builder.take(Add(at=record.at, requests=[record.request], prompt=[], max_output=0))
                self.builder.take(record)

    def _own(self, record: AbortLine | events.Event) -> None:
        if isinstance(record, events.Admitted | events.Forked):
            self._is_waiting = False
        elif isinstance(record, events.Preempted):
            self._is_decoding = False
            self._num_known = max(self._num_known, record.num_computed + 1)
        self.builder.take(record)
        if isinstance(record, events.Forked):
            self._is_decoding, self._num_computed = True, self._num_prompt
            self._see_again([plan for plan in self._open.values() if plan.at > record.at])
        elif isinstance(record, events.Preempted):
            self._see_again([plan for plan in self._open.values() if plan.at >= record.at])

    def _see_again(self, plans: list[PlanRecord]) -> None:
        """Plans whose records come before the event that they follow from."""
        for plan in plans:
            self.builder.see(self._plan_view(plan))

    def _roll_back(self, plan: PlanRecord) -> None:
        chunk = self._chunk(plan)
        if chunk is not None:
            self._num_computed = chunk[1]
            self._is_decoding = self._num_computed == self._num_known - 1
        elif self._decodes(plan):
            self._num_computed -= 1

    def _plan_view(self, plan: PlanRecord) -> PlanView:
        own, is_decode = None, False
        chunk = self._chunk(plan)
        if chunk is not None:
            _, start, count, is_sampled = chunk
            own = start, count
            self._num_computed = start + count
            # The last known token, left alone, is computed as a decode is.
            self._is_decoding = is_sampled or self._num_computed == self._num_known - 1
        elif self._decodes(plan):
            own, is_decode = (self._num_computed, 1 + plan.num_drafts.get(self._id, 0)), True
            self._num_computed += 1
        num_prompt_tokens = sum(count for other, _, count, _ in plan.prompts if other != self._id)
        sizes = (plan.num_chunks, plan.num_tokens, num_prompt_tokens, plan.running, plan.blocks)
        return PlanView(plan.at, plan.step, own, is_decode, *sizes)

    def _decodes(self, plan: PlanRecord) -> bool:
        is_named = plan.num_decoding > 0 if plan.decoding is None else self._id in plan.decoding
        return self._is_decoding and is_named

    def _chunk(self, plan: PlanRecord) -> PromptChunk | None:
        return next((chunk for chunk in plan.prompts if chunk[0] == self._id), None)
