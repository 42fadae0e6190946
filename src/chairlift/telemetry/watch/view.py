"""The engine's observer for the live page: the last five minutes, ready to be shown.

Always: a step costs a few microseconds with or without watchers, and one look at each of its events. Prompts and
answers are not kept, only their lengths.
"""

from collections import deque
from collections.abc import Callable, Sequence
from operator import sub
from typing import Any

import msgspec

from chairlift.core.events import Admitted, Computed, Event, Finished, Forked, Preempted, Queued, Token
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Clock
from chairlift.core.request import FinishReason, Request, State
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.telemetry.device import DeviceUse
from chairlift.telemetry.explain import headline, parts, sentences
from chairlift.telemetry.lines import AbortLine, Fail, RollBack
from chairlift.telemetry.phases import DECODE, PREEMPTED, QUEUED, SWAPPED
from chairlift.telemetry.stopwatch import Stopwatch
from chairlift.telemetry.watch.bars import Bar, BarRow, ShownRows
from chairlift.telemetry.watch.blocks import draw
from chairlift.telemetry.watch.sliding import Sliding
from chairlift.telemetry.watch.step_log import CommitRecord, StepLog, break_down
from chairlift.telemetry.watch.ticks import COLUMNS, KEEP_S, PERIOD_S, WINDOW_S, Tick, TickSums, added_up, make_tick

_TELLING = (Queued, Admitted, Forked, Preempted, Computed, Finished, Token)


class View:
    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        runner: Stopwatch,
        start: int = 1,
        device: Callable[[], DeviceUse | None] = lambda: None,
    ) -> None:
        """`start` counts the engines of a server from 1. `device` gives the latest sample of a GPU."""
        self._scheduler = scheduler
        self._now = clock.now
        self._encode = msgspec.json.Encoder().encode
        self._start = start
        self._runner = runner
        self._device = device
        self._runner_s = (0.0, 0.0, 0.0)  # at the last tick
        self._ticks: deque[Tick] = deque()
        self.num_ticks = 0
        self._began = self._now()  # of the open tick
        self._sums = TickSums()
        self._totals = TickSums()  # of closed ticks
        self._ttft, self._tpot, self._itl = Sliding(WINDOW_S), Sliding(WINDOW_S), Sliding(WINDOW_S)
        self._sampled = 0.0  # when a step last made a token
        self._decoded: float | None = None  # when a step last decoded, if requests have run since
        self._left: float | None = None  # when the last step ended, if there was work left
        self._log = StepLog()
        self._held: CommitRecord | Fail | None = None  # logged after the events of its planning
        self._live: dict[RequestId, BarRow] = {}
        self._fresh: dict[RequestId, BarRow] = {}  # awaiting a first token that no event tells of
        self._is_drained = False  # all steps in flight are collected at once, as another did not fit
        self._firsts: dict[RequestId, float] = {}  # then, when each request's first token of these came
        self._shown = ShownRows()

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        scheduler, params = self._scheduler, samples[0].params
        # Ends an idle tick, so that new work is not spread over it; the prompt that ends the pause is no part of it.
        self.advance(num_new=scheduler.live[samples[0].id].state is State.WAITING)
        ids = tuple(request.id for request in samples)
        num_running = len(scheduler.running)
        num_ahead = len(scheduler.live) - num_running - len(samples)
        for request in samples[: params.n] if params.beam_width else samples:
            row = BarRow(scheduler.live[request.id], ids, num_running, num_ahead, self._log.total)
            self._live[request.id] = row
            self._shown.offer(row)

    def aborted(self, request: RequestId, now: float, has_moved: bool) -> None:
        self._hold(None)
        self._log.add(AbortLine(now, request, has_moved))

    def leaving(self, *_: object, **__: object) -> None:
        """Events follow."""

    arrived = served_elsewhere = leaving

    def planned(self, plan: StepPlan | None, now: float) -> None:
        counts = self._sums
        if self._left is not None:
            counts.other_s += now - self._left
            self._left = None
        counts.schedule_s += self._now() - now
        scheduler = self._scheduler
        self._log.add_plan(plan, scheduler.step_budget, len(scheduler.running), scheduler.pool.num_held, now)

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None:
        counts = self._sums
        counts.steps += 1
        counts.prompt_tokens += sum(chunk.count for chunk in plan.chunks[plan.num_decoding :])
        if result.tokens:
            counts.output_tokens += len(result.tokens) + sum(map(len, result.more.values()))
            if plan.num_decoding:  # several tokens of a request come together and count as one
                self._itl.add(now - (self._sampled if self._decoded is None else self._decoded), plan.num_decoding)
                self._decoded = now
            self._sampled = now
        self._hold(CommitRecord(now, plan.step))
        counts.commit_s += self._now() - now

    def failed(self, plan: StepPlan, message: str, now: float) -> None:
        self._hold(Fail(now, plan.step, message))

    def rolled_back(self, plan: StepPlan, message: str, now: float) -> None:
        self._hold(None)
        self._log.add(RollBack(now, plan.step, message))
        self._is_drained = True
        for chunk in plan.chunks:  # the rest of a prompt may now be one token, which no event tells of
            row = self._live.get(chunk.request.id)
            if row is not None and row.first is None:
                self._fresh[chunk.request.id] = row

    def happened(self, events: Sequence[Event]) -> None:
        if self._is_drained:
            self._firsts = {event.request: event.at for event in reversed(events) if isinstance(event, Token)}
        # Most events are tokens before a request's last, with None as their last field.
        for event in [event for event in events if event[-1] is not None]:
            self._take(event)
        self._hold(None)
        for row in list(self._fresh.values()):
            if row.num_output:
                self._note_first(row, self._sampled)
        self._is_drained, self._firsts = False, {}
        if not self._scheduler.running:
            self._decoded = None
        now = self.advance()
        self._left = now if self._scheduler.live else None

    def _take(self, event: Event) -> None:
        if not isinstance(event, _TELLING):
            return
        if self._held is not None and event.at >= self._held.at and not isinstance(event, Admitted | Preempted):
            self._hold(None)
        if not isinstance(event, Computed):
            self._log.add(event)
        if isinstance(event, Preempted):
            self._sums.preemptions += 1
        row = self._live.get(event.request)
        if row is None:
            return
        if isinstance(event, Token | Finished):
            self._finish(row, event)
            return
        row.take(event)
        if isinstance(event, Admitted) and row.first is None:
            self._sums.cached_tokens += event.num_cached
            self._sums.missed_tokens += event.num_missed
        if row.first is None and row.state in (DECODE, PREEMPTED, SWAPPED):
            self._fresh[event.request] = row

    def _hold(self, record: CommitRecord | Fail | None) -> None:
        if self._held is not None:
            self._log.add(self._held)
        self._held = record

    def _note_first(self, row: BarRow, at: float) -> None:
        at = self._firsts.get(row.progress.id, at)
        row.begin(at)
        self._ttft.add(at - row.progress.arrival)
        self._fresh.pop(row.progress.id, None)

    def _finish(self, row: BarRow, event: Token | Finished) -> None:
        counts = self._sums
        del self._live[event.request]
        self._fresh.pop(event.request, None)
        assert event.finish is not None
        row.close(event.at, event.finish.value)
        if isinstance(event, Finished):
            counts.aborted += event.finish is FinishReason.ABORT
            counts.failed += event.finish not in (FinishReason.ABORT, FinishReason.MOVED)
            return
        counts.finished += 1
        if row.first is None:
            self._note_first(row, event.at)
        assert row.first is not None
        if row.num_output > 1:
            self._tpot.add((event.at - row.first) / (row.num_output - 1))

    def advance(self, num_new: int = 0) -> float:
        """Closes the open tick if it is over; returns the time. `num_new` of the waiting requests come after it."""
        now = self._now()
        if now - self._began >= PERIOD_S:
            self._close_tick(now, len(self._scheduler.waiting) - num_new)
        return now

    @property
    def due_s(self) -> float:
        """Until the open tick is over."""
        return max(0.0, self._began + PERIOD_S - self._now())

    def _close_tick(self, now: float, num_waiting: int) -> None:
        counts, runner, before = self._sums, self._runner, self._runner_s
        self._runner_s = runner.prepare_s, runner.run_s, runner.busy_s
        counts.prepare_s, counts.compute_s, counts.busy_s = map(sub, self._runner_s, before)
        latencies = self._ttft, self._tpot, self._itl
        for latency in latencies:
            for _ in range(min(WINDOW_S, max(1, round(now - self._began)))):
                latency.turn()
        ttft, tpot, itl = (latency.percentiles() for latency in latencies)
        # Rows are in the order of arrival.
        waits = (now - row.progress.arrival for row in self._live.values() if row.state == QUEUED)
        levels = self._scheduler, num_waiting, next(waits, 0.0), (ttft, tpot, itl), self._device()
        tick = make_tick(now, now - self._began, *levels, counts)
        self._ticks.append(tick)
        while self._ticks[0][0] < now - KEEP_S:
            self._ticks.popleft()
        self.num_ticks += 1
        self._totals = added_up(self._totals, counts)
        self._began, self._sums = now, TickSums()
        self._shown.forget(now)

    def whole(self) -> bytes:
        """The whole view, as of the last tick."""
        return self._encode(
            self._news(list(self._ticks), [row.bar() for row in self._shown])
            | {
                "start": self._start,
                "columns": COLUMNS,
                "bar_columns": Bar._fields,
                "depth": self._runner.depth,
                "period_s": PERIOD_S,
                "window_s": WINDOW_S,
            }
        )

    def news(self, num_ticks: int) -> bytes:
        """The news of the last `num_ticks`; called once for all watchers."""
        new = [row for row in self._shown if row.is_new]
        for row in new:
            row.is_new = False
        news = self._news(list(self._ticks)[-num_ticks:], [row.bar() for row in new])
        gone, self._shown.gone = self._shown.gone, []
        return self._encode(news | {"gone": gone})

    def _news(self, ticks: list[Tick], bars: list[Bar]) -> dict[str, Any]:
        tables = self._scheduler.tables
        return {
            "now": round(self._now(), 3),
            "ticks": ticks,
            "totals": self._totals,
            "bars": bars,
            "every": self._shown.every,
            "blocks": draw(tables.pool),
            "host": draw(tables.host),
        }

    def explain(self, request: RequestId) -> bytes | None:
        """Its user and latency breakdown; None when it is not shown, or began too long ago."""
        row = self._shown.get(request)
        breakdown = None if row is None else break_down(self._log, row, self._scheduler.limits)
        if breakdown is None or row is None:
            return None
        return self._encode(
            {
                "bar": row.bar(),
                "user": row.progress.request.attributes.user,
                "headline": list(headline(breakdown)),
                "parts": list(parts(breakdown)),
                "sentences": list(sentences(breakdown)),
                "preempted": row.progress.num_preempted,
            }
        )
