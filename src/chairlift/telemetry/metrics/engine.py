"""The engine's metrics, from its observer.

Always: counts are shown a tenth of a second later at most, and at once when the engine is idle.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from chairlift.core.events import Admitted, Event, Finished, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.request import Request
from chairlift.core.routing.queued import QueuedWork
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.telemetry.metrics.figures import COUNTERS, GAUGES, HISTOGRAMS, STEP_PARTS, Counts, Figures
from chairlift.telemetry.metrics.replica import ReplicaSeries
from chairlift.telemetry.metrics.store import FLUSH_S, Store
from chairlift.telemetry.stopwatch import Stopwatch


@dataclass(slots=True)
class _Times:
    num_prompt: int  # 0: counted with another sample, or by the engine before
    queued: float
    num_cached: int = 0  # of its prompt
    num_missed: int = 0
    admitted: float | None = None
    first: float | None = None


class EngineMetrics:
    """An engine's observer; the first of several, as it measures times by when it is called."""

    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        stopwatch: Stopwatch,
        replica: int = 0,
        queued: QueuedWork | None = None,
        num_turned_away: Callable[[], int] = lambda: 0,
    ) -> None:
        """`queued`: the load of one of several replicas. `num_turned_away`: connections without the cluster key, so
        far."""
        self._store = store
        self._scheduler = scheduler
        self._stopwatch = stopwatch
        self._runner_s = (0.0, 0.0)  # after the last step
        self._live: dict[RequestId, _Times] = {}
        self._last: dict[RequestId, float] = {}  # when each made its last token
        self._flushed = 0.0
        self._parts = {part: store.histogram("chairlift_step_seconds", part) for part in STEP_PARTS}
        self._preemptions = {kind: store.counter("chairlift_preemptions_total", kind) for kind in ("recompute", "swap")}
        self._prompt = store.counter("chairlift_prompt_tokens_total")
        self._cached = store.counter("chairlift_prompt_tokens_cached_total")
        self._missed = store.counter("chairlift_prompt_tokens_missed_total")
        self._generated = store.counter("chairlift_generated_tokens_total")
        self._busy = store.counter("chairlift_step_busy_seconds_total")
        self._late = store.counter("chairlift_steps_late_total")
        self._step_tokens = store.histogram("chairlift_step_tokens")
        self._between = store.histogram("chairlift_inter_token_seconds")
        self._queue = store.histogram("chairlift_queue_seconds")
        self._prefill = store.histogram("chairlift_prefill_seconds")
        self._decode = store.histogram("chairlift_decode_seconds")
        self._inference = store.histogram("chairlift_inference_seconds")
        self._drains = store.counter("chairlift_drains_total")
        self._fetches = {is_whole: store.counter("chairlift_kv_fetches_total", outcome)
                         for is_whole, outcome in ((True, "whole"), (False, "failed"))}  # fmt: skip
        self._histograms = [store.histogram(*name) for name in HISTOGRAMS]
        self._num_moved_in = 0
        self._is_draining = False
        self.queued = queued
        self._num_turned_away = num_turned_away
        self._gauges = {field: store.gauge(*name) for field, name in GAUGES.items()}
        if replica == 0:  # figures of replicas are added up
            store.gauge("chairlift_kv_block_size_tokens").set(scheduler.limits.block_size)
        self._of_replica = ReplicaSeries(store, replica)
        self._born = secrets.randbits(53)
        self._shown = Figures()
        self._flush(monotonic())

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        for request in samples:
            if request.output:  # resumed from another engine
                self._live[request.id] = _Times(0, now, admitted=now, first=now)
                self._last[request.id] = now
            else:
                self._live[request.id] = _Times(0 if request.sample_index else len(request.prompt), now)

    def aborted(self, *_: object, **__: object) -> None:
        """An event follows."""

    failed = rolled_back = leaving = served_elsewhere = aborted

    def arrived(self, request: RequestId, is_whole: bool, now: float) -> None:
        self._fetches[is_whole].add()

    def planned(self, plan: StepPlan | None, now: float) -> None:
        if plan is not None:
            self._parts["schedule"].add(monotonic() - now)
            self._step_tokens.add(plan.num_tokens)

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None:
        self._parts["commit"].add(monotonic() - now)
        (prepare_s, run_s), runner = self._runner_s, self._stopwatch
        self._parts["prepare"].add(runner.prepare_s - prepare_s)
        self._parts["run"].add(runner.run_s - run_s)
        self._runner_s = runner.prepare_s, runner.run_s

    def happened(self, events: Sequence[Event]) -> None:
        last, gaps, num_tokens = self._last, list[float](), 0
        for event in events:
            if isinstance(event, Token):  # most are
                request, at, _, _, finish = event
                num_tokens += 1
                before = last.get(request)
                if before is None:
                    self._begin(request, at)
                elif at > before:  # tokens of one step come together: of searches and drafts
                    gaps.append(at - before)
                last[request] = at
                if finish is not None:
                    self._end(request)
            else:
                self._change(event)
        for gap, count in Counter(gaps).items():  # most gaps are equal
            self._between.add(gap, count)
        self._generated.add(num_tokens)
        now = monotonic()
        if now - self._flushed > FLUSH_S or not self._scheduler.live:
            self._flush(now)

    def _change(self, event: Event) -> None:
        request = self._live.get(event.request)
        if isinstance(event, Preempted):
            self._preemptions["swap" if event.is_swapped else "recompute"].add()
        elif isinstance(event, Finished):
            self._end(event.request)
        elif isinstance(event, Admitted) and request is not None and request.admitted is None:
            request.admitted = event.at
            request.num_cached = min(event.num_cached, request.num_prompt)
            request.num_missed = min(event.num_missed, request.num_prompt)

    def _begin(self, id: RequestId, at: float) -> None:
        """Counts prompt and wait with the first token; after a death before it, the next engine counts them."""
        request = self._live.get(id)
        if request is not None:
            request.first = at
            self._prompt.add(request.num_prompt)
            self._cached.add(request.num_cached)
            self._missed.add(request.num_missed)
            if request.admitted is not None and request.num_prompt:
                self._queue.add(request.admitted - request.queued)
                self._prefill.add(at - request.admitted)

    def _end(self, id: RequestId) -> None:
        request, last = self._live.pop(id, None), self._last.pop(id, None)
        if request is not None and request.first is not None and last is not None:
            self._decode.add(last - request.first)
            if request.admitted is not None:
                self._inference.add(last - request.admitted)

    def drained(self, is_on: bool) -> None:
        """The engine was asked to be left by its requests, or to take some again."""
        self._drains.add(is_on and not self._is_draining)
        self._is_draining = is_on
        self._flush(monotonic())

    def moved_in(self) -> None:
        """A request has come that began in another engine."""
        self._num_moved_in += 1

    def figures(self) -> Figures:
        """Those of this moment."""
        scheduler, watch = self._scheduler, self._stopwatch
        pool = scheduler.pool
        return Figures(
            born=self._born,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            preempted=len(scheduler.preempted),
            queued_tokens=0 if self.queued is None else self.queued.amount,
            blank=pool.num_free - pool.num_cached,
            cached=pool.num_cached,
            held=pool.num_held,
            swapped=scheduler.tables.host.num_held,
            capacity=scheduler.limits.num_blocks,
            block_size=scheduler.limits.block_size,
            is_draining=self._is_draining,
            prompt_tokens=int(self._prompt.total),
            cached_tokens=int(self._cached.total),
            missed_tokens=int(self._missed.total),
            generated_tokens=int(self._generated.total),
            recomputed=int(self._preemptions["recompute"].total),
            swapped_out=int(self._preemptions["swap"].total),
            busy_s=watch.busy_s,
            late=watch.num_late,
            drains=int(self._drains.total),
            moved_in=self._num_moved_in,
            turned_away=self._num_turned_away(),
            fetched=int(self._fetches[True].total),
            unfetched=int(self._fetches[False].total),
        )

    def histograms(self) -> list[Counts]:
        """In the order of `HISTOGRAMS`."""
        return [histogram.counts() for histogram in self._histograms]

    def _flush(self, now: float) -> None:
        self._flushed = now
        figures, before = self.figures(), self._shown
        for field, gauge in self._gauges.items():
            gauge.set(getattr(figures, field))
        self._busy.add(figures.busy_s - before.busy_s)
        self._late.add(figures.late - before.late)
        if figures.turned_away > before.turned_away:  # without a cluster there is no such series
            self._store.counter(*COUNTERS["turned_away"]).add(figures.turned_away - before.turned_away)
        self._of_replica.show(figures, before)
        self._shown = figures
        self._store.flush()
