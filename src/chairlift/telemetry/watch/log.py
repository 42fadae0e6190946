"""What is kept of the last minutes, so that a request's story can be told while the engine runs.

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
from chairlift.telemetry.breakdown import Glance, Story, Teller
from chairlift.telemetry.lines import Abort, Add, Commit, Fail, PutBack
from chairlift.telemetry.watch.bars import Row

MAX_RECORDS = 60_000


class Planned(NamedTuple):
    at: float
    step: int | None  # None: there was nothing to compute
    num_chunks: int
    num_decoding: int
    num_tokens: int
    running: int
    blocks: int
    prompts: tuple[tuple[RequestId, int, int, bool], ...]  # request, start, count, whether it samples
    num_drafts: dict[RequestId, int]


class Done(NamedTuple):
    """A step is committed."""

    at: float
    step: int


Record = Planned | Done | Fail | PutBack | Abort | events.Event


class Log:
    def __init__(self) -> None:
        self.total = 0  # records so far
        self._records: deque[Record] = deque(maxlen=MAX_RECORDS)

    def add(self, record: Record) -> None:
        self._records.append(record)
        self.total += 1

    def add_plan(self, plan: StepPlan | None, running: int, blocks: int, now: float) -> None:
        if plan is None:
            self.add(Planned(now, None, 0, 0, 0, running, blocks, (), {}))
            return
        prompts = tuple((c.request.id, c.start, c.count, bool(c.samples)) for c in plan.chunks[plan.num_decoding :])
        num_drafts = {c.request.id: len(c.drafts) for c in plan.chunks[plan.num_decodes : plan.num_decoding]}
        chunks, tokens = len(plan.chunks), plan.num_tokens
        self.add(Planned(now, plan.step, chunks, plan.num_decoding, tokens, running, blocks, prompts, num_drafts))

    def since(self, mark: int) -> Iterator[Record] | None:
        """All records after the first `mark`; None when some of them are gone."""
        place = mark - (self.total - len(self._records))
        return None if place < 0 else islice(self._records, place, None)


def tell(log: Log, row: Row, limits: Limits) -> Story | None:
    """Where the time of a request went, up to now; None when too long ago it began."""
    records = log.since(row.mark)
    if records is None:
        return None
    eye = _Eye(row, limits)
    for record in records:
        eye.take(record)
        if eye.teller.is_done:
            break
    story = eye.teller.story
    assert story is not None
    story.num_running, story.num_ahead = row.num_running, row.num_ahead
    story.num_tokens, story.first_token = row.num_output, row.first
    return story


class _Eye:
    """Sees the records as one request does."""

    def __init__(self, row: Row, limits: Limits) -> None:
        request = row.progress.request
        self.teller = Teller(limits, request.id)
        self._id = request.id
        self._num_prompt = len(request.prompt)
        self._num_computed = 0
        self._num_known = len(request.prompt) + len(request.output)  # when it last began to wait
        self._is_decoding = False
        self._is_waiting = True  # has never sat
        self._open: dict[int | None, Planned] = {}
        self._arrival = row.progress.arrival
        self._later: set[RequestId] = set()  # who came after it
        lengths = [0] * self._num_prompt
        self.teller.take(
            Add(
                at=row.progress.arrival,
                requests=list(row.siblings),
                prompt=lengths,
                max_output=request.max_output,
            )
        )

    def take(self, record: Record) -> None:
        if isinstance(record, Planned):
            self._open[record.step] = record
            self.teller.see(self._glance(record))
        elif isinstance(record, Done | Fail | PutBack):
            plan = self._open.pop(record.step, None)
            if plan is None and not self._is_waiting:  # planned before it came
                self.teller.see(_passing(record))
            elif plan is not None and isinstance(record, PutBack):
                self._put_back(plan)
            self.teller.take(Commit(at=record.at, step=record.step, tokens=[]) if isinstance(record, Done) else record)
        elif record.request == self._id:
            self._own(record)
        elif self._is_waiting:
            if isinstance(record, events.Queued) and record.at > self._arrival:
                self._later.add(record.request)
            elif isinstance(record, events.Admitted):
                if record.request in self._later:
                    self.teller.take(Add(at=record.at, requests=[record.request], prompt=[], max_output=0))
                self.teller.take(record)

    def _own(self, record: Abort | events.Event) -> None:
        match record:
            case Abort():
                self.teller.take(record)
                return
            case events.Admitted() | events.Forked():
                self._is_waiting = False
            case events.Preempted():
                self._is_decoding = False
                self._num_known = max(self._num_known, record.num_computed + 1)
            case events.Queued():
                return
        self.teller.take(record)
        if isinstance(record, events.Forked):
            self._is_decoding, self._num_computed = True, self._num_prompt
            for plan in self._open.values():  # made before anybody was told of the one that it was born in
                if plan.at > record.at:
                    self.teller.see(self._glance(plan))

    def _put_back(self, plan: Planned) -> None:
        chunk = next((chunk for chunk in plan.prompts if chunk[0] == self._id), None)
        if chunk is not None:
            self._num_computed = chunk[1]
            self._is_decoding = self._num_computed == self._num_known - 1
        elif self._is_decoding and plan.num_decoding:
            self._num_computed -= 1

    def _glance(self, plan: Planned) -> Glance:
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
        return Glance(plan.at, plan.step, own, is_decode, *sizes)


def _passing(end: Done | Fail | PutBack) -> Glance:
    return Glance(end.at, end.step, None, False, 0, 0, 0, 0, 0)
