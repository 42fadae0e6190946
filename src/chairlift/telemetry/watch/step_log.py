"""What is kept of the last minutes, so that a request's breakdown can be told while the engine runs.

A record of each step costs the same however many requests decode in it: who decodes is not written down, for it follows
from what else is. Always: a request that has its prompt computed and sits is in every step that decodes; only the
members of searches, steps cut for want of memory, and drafts with several steps in flight may be told a little wrong.
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
from chairlift.telemetry.lines import AbortLine, Add, Commit, Fail, RollBack
from chairlift.telemetry.watch.bars import BarRow

MAX_RECORDS = 60_000


class PlanRecord(NamedTuple):
    at: float
    step: int | None  # None: there was nothing to compute
    num_chunks: int
    num_decoding: int
    num_tokens: int
    running: int
    blocks: int
    prompts: tuple[tuple[RequestId, int, int, bool], ...]  # request, start, count, whether it samples
    num_drafts: dict[RequestId, int]


class CommitRecord(NamedTuple):
    """A step is committed."""

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

    def add_plan(self, plan: StepPlan | None, running: int, blocks: int, now: float) -> None:
        if plan is None:
            self.add(PlanRecord(now, None, 0, 0, 0, running, blocks, (), {}))
            return
        prompts = tuple((c.request.id, c.start, c.count, bool(c.samples)) for c in plan.chunks[plan.num_decoding :])
        num_drafts = {c.request.id: len(c.drafts) for c in plan.chunks[plan.num_decodes : plan.num_decoding]}
        chunks, tokens = len(plan.chunks), plan.num_tokens
        self.add(PlanRecord(now, plan.step, chunks, plan.num_decoding, tokens, running, blocks, prompts, num_drafts))

    def since(self, mark: int) -> Iterator[StepRecord] | None:
        """All records after the first `mark`; None when some of them are gone."""
        place = mark - (self.total - len(self._records))
        return None if place < 0 else islice(self._records, place, None)


def break_down(log: StepLog, row: BarRow, limits: Limits) -> Breakdown | None:
    """Where the time of a request went, up to now; None when too long ago it began."""
    records = log.since(row.mark)
    if records is None:
        return None
    reader = _LogReader(row, limits)
    for record in records:
        reader.take(record)
        if reader.builder.is_done:
            break
    breakdown = reader.builder.breakdown
    assert breakdown is not None
    breakdown.num_running, breakdown.num_ahead = row.num_running, row.num_ahead
    breakdown.num_tokens, breakdown.first_token = row.num_output, row.first
    return breakdown


class _LogReader:
    """Sees the records as one request does."""

    def __init__(self, row: BarRow, limits: Limits) -> None:
        request = row.progress.request
        self.builder = BreakdownBuilder(limits, request.id)
        self._id = request.id
        self._num_prompt = len(request.prompt)
        self._num_computed = 0
        self._num_known = len(request.prompt) + len(request.output)  # when it last began to wait
        self._is_decoding = False
        self._is_waiting = True  # has never sat
        self._open: dict[int | None, PlanRecord] = {}
        self._arrival = row.progress.arrival
        self._later: set[RequestId] = set()  # who came after it
        lengths = [0] * self._num_prompt
        self.builder.take(
            Add(
                at=row.progress.arrival,
                requests=list(row.siblings),
                prompt=lengths,
                max_output=request.max_output,
            )
        )

    def take(self, record: StepRecord) -> None:
        if isinstance(record, PlanRecord):
            self._open[record.step] = record
            self.builder.see(self._plan_view(record))
        elif isinstance(record, CommitRecord | Fail | RollBack):
            plan = self._open.pop(record.step, None)
            if plan is None and not self._is_waiting:  # planned before it came
                self.builder.see(_passing(record))
            elif plan is not None and isinstance(record, RollBack):
                self._roll_back(plan)
            self.builder.take(
                Commit(at=record.at, step=record.step, tokens=[]) if isinstance(record, CommitRecord) else record
            )
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
        match record:
            case AbortLine():
                self.builder.take(record)
                return
            case events.Admitted() | events.Forked():
                self._is_waiting = False
            case events.Preempted():
                self._is_decoding = False
                self._num_known = max(self._num_known, record.num_computed + 1)
            case events.Queued():
                return
        self.builder.take(record)
        if isinstance(record, events.Forked):
            self._is_decoding, self._num_computed = True, self._num_prompt
            for plan in self._open.values():  # made before anybody was told of the one that it was born in
                if plan.at > record.at:
                    self.builder.see(self._plan_view(plan))

    def _roll_back(self, plan: PlanRecord) -> None:
        chunk = next((chunk for chunk in plan.prompts if chunk[0] == self._id), None)
        if chunk is not None:
            self._num_computed = chunk[1]
            self._is_decoding = self._num_computed == self._num_known - 1
        elif self._is_decoding and plan.num_decoding:
            self._num_computed -= 1

    def _plan_view(self, plan: PlanRecord) -> PlanView:
        own, is_decode = None, False
        chunk = next((chunk for chunk in plan.prompts if chunk[0] == self._id), None)
        if chunk is not None:
            _, start, count, is_sampled = chunk
            own = start, count
            self._num_computed = start + count
            # The last known token, left alone, is computed as a decode is.
            self._is_decoding = is_sampled or self._num_computed == self._num_known - 1
        elif self._is_decoding and plan.num_decoding:
            own, is_decode = (self._num_computed, 1 + plan.num_drafts.get(self._id, 0)), True
            self._num_computed += 1
        num_prompt_tokens = sum(count for other, _, count, _ in plan.prompts if other != self._id)
        sizes = (plan.num_chunks, plan.num_tokens, num_prompt_tokens, plan.running, plan.blocks)
        return PlanView(plan.at, plan.step, own, is_decode, *sizes)


def _passing(end: CommitRecord | Fail | RollBack) -> PlanView:
    return PlanView(end.at, end.step, None, False, 0, 0, 0, 0, 0)
