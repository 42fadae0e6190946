"""Gathers a run's figures from events and makes its report.

Always: memory grows with live requests and users, plus thirty-two bytes for each finished request. Only requests of
`added` count, without the extra members of beam searches. Knows nothing of clocks: every time comes with an event.
Of a request's phases it takes whether it waits: latencies run from a client's sending, and steps may be told in bulk.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chairlift.core.events import Admitted, Computed, Event, Finished, Forked, Preempted, RuleFailed, Token
from chairlift.core.ids import RequestId
from chairlift.core.memory.pool import BlockPool
from chairlift.core.plan import StepPlan
from chairlift.core.request import FinishReason, Request
from chairlift.core.scheduling.steady import Skipped
from chairlift.telemetry import report
from chairlift.telemetry.phases import WAITS, after
from chairlift.telemetry.report import Latencies, Level, Report, Slo, Spread, UserShare


@dataclass(slots=True)
class _User:
    requests: int = 0
    finished: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    num_waiting: int = 0
    since: float = 0.0  # the run's competing seconds when its wait began
    competing_s: float = 0.0
    competing_tokens: int = 0

    def share(self) -> UserShare:
        count = max(self.finished, 1)
        counts = (self.requests, self.finished, self.prompt_tokens, self.output_tokens)
        return UserShare(*counts, self.ttft_s / count, self.e2e_s / count, self.competing_s, self.competing_tokens)


@dataclass(slots=True)
class _Live:
    user: _User
    queued: float
    is_waiting: bool = False
    admitted: float = math.nan
    first: float = math.nan
    last: float = math.nan
    num_tokens: int = 0


class Timeline:
    """An engine's observer, which reads `pool` after each plan; or fed with `added`, `stepped` and `add`."""

    def __init__(self, pool: BlockPool | None = None, delay: Callable[[Request], float] | None = None) -> None:
        """`delay`: how long before it was added a client sent a request; latencies count from there."""
        self._pool = pool
        self._delay = delay
        self._live: dict[RequestId, _Live] = {}
        self._users: dict[str, _User] = {}
        self._done = Latencies.none()
        self._sum_blocks = self._max_blocks = self._sum_saved = self._max_saved = 0  # over the steps
        self._num_waiting_users = 0
        self._competing_s = 0.0  # time with requests of at least two users waiting
        self._changed = 0.0  # when that time was last updated
        self._started = math.inf
        self._ended = -math.inf
        self._num_steps = self._num_decode_steps = self._num_requests = 0
        self._num_failed = self._num_aborted = self._num_moved = self._num_kv_moved = 0
        self._num_preempted = self._num_swapped = self._num_cached = self._num_missed = 0
        self._rule_failures: list[str] = []

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        params = samples[0].params
        heard = samples[: params.n] if params.beam_width else samples
        user = self._users.setdefault(samples[0].attributes.user, _User())
        user.prompt_tokens += len(samples[0].prompt)
        user.requests += len(heard)
        self._num_requests += len(heard)
        sent = now if self._delay is None else now - self._delay(samples[0])
        self._started = min(self._started, sent)
        for request in heard:
            self._live[request.id] = live = _Live(user, sent)
            self._set_waiting(live, True, sent)

    def moved(self, request: RequestId, now: float) -> None:
        """A request waits again, in another engine."""
        self._num_moved += 1
        if (live := self._live.get(request)) is not None:
            self._set_waiting(live, True, now)

    def aborted(self, *_: object, **__: object) -> None:
        """An event follows."""

    committed = failed = rolled_back = leaving = served_elsewhere = aborted

    def arrived(self, request: RequestId, is_whole: bool, now: float) -> None:
        self._num_kv_moved += is_whole

    def planned(self, plan: StepPlan | None, now: float) -> None:
        if plan is not None:
            pool = self._pool
            self.stepped(plan.num_decoding, pool.num_held if pool else 0, pool.num_shared if pool else 0)

    def stepped(self, num_decoding: int, num_blocks: int, num_saved: int) -> None:
        """A step was planned, with `num_blocks` in use and `num_saved` by sharing."""
        self._num_steps += 1
        self._num_decode_steps += num_decoding > 0
        self._sum_blocks += num_blocks
        self._sum_saved += num_saved
        if num_blocks > self._max_blocks:
            self._max_blocks = num_blocks
        if num_saved > self._max_saved:
            self._max_saved = num_saved

    def skipped(self, steps: Skipped) -> None:
        """Steps of decodes alone; the last tokens of requests that ended in them come as events."""
        count, num_blocks = len(steps.times), steps.num_held + len(steps.taken) - len(steps.released)
        self._num_steps += count
        self._num_decode_steps += count
        self._sum_blocks += count * num_blocks - sum(steps.taken) + sum(steps.released)
        self._sum_saved += count * steps.num_shared
        self._max_blocks = max(self._max_blocks, num_blocks)
        self._max_saved = max(self._max_saved, steps.num_shared)
        first, last = steps.times[0], steps.times[-1]
        self._ended = max(self._ended, last)
        for request in steps.requests:
            if (live := self._live.get(request)) is not None:
                self._tokens(live, count, first, last)
        for request in steps.ended if count > 1 else ():
            if (live := self._live.get(request)) is not None:
                self._tokens(live, count - 1, first, steps.times[-2])

    def happened(self, events: Sequence[Event]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        live = self._live.get(event.request)
        if isinstance(event, Token):
            if live is not None:
                self._token(live, event)
        elif isinstance(event, RuleFailed):
            self._rule_failures.append(event.message)
        else:
            self._change(live, event)
        self._ended = max(self._ended, event.at)  # replicas tell in turns

    def _token(self, live: _Live, event: Token) -> None:
        self._tokens(live, 1, event.at, event.at)
        if event.finish is not None:
            self._finish(event.request, live)

    def _tokens(self, live: _Live, count: int, first: float, last: float) -> None:
        if not live.num_tokens:
            live.first = first
        live.num_tokens += count
        live.last = last
        live.user.output_tokens += count
        if self._num_waiting_users > 1 and live.user.num_waiting:
            live.user.competing_tokens += count

    def _change(self, live: _Live | None, event: Event) -> None:
        if isinstance(event, Preempted):  # also of a search's silent members
            self._num_preempted += 1
            self._num_swapped += event.is_swapped
        if live is None:
            return
        if phase := after("", event):
            self._set_waiting(live, phase in WAITS, event.at)
        match event:
            case Admitted() | Forked() if math.isnan(live.admitted):
                live.admitted = event.at
                if isinstance(event, Admitted):
                    self._num_cached += event.num_cached
                    self._num_missed += event.num_missed
            case Computed():
                if self._num_waiting_users > 1 and live.user.num_waiting:
                    live.user.competing_tokens += event.num_tokens
            case Finished():
                self._num_aborted += event.finish is FinishReason.ABORT
                self._num_moved += event.finish is FinishReason.MOVED
                self._num_failed += event.finish not in (FinishReason.ABORT, FinishReason.MOVED)
                del self._live[event.request]

    def _finish(self, request: RequestId, live: _Live) -> None:
        self._set_waiting(live, False, live.last)
        del self._live[request]
        user, done, queued = live.user, self._done, live.queued
        user.finished += 1
        user.ttft_s += live.first - queued
        user.e2e_s += live.last - queued
        done.queue_s.append(live.admitted - queued)
        done.ttft_s.append(live.first - queued)
        done.tpot_s.append((live.last - live.first) / (live.num_tokens - 1) if live.num_tokens > 1 else math.nan)
        done.e2e_s.append(live.last - queued)

    def _set_waiting(self, live: _Live, is_waiting: bool, now: float) -> None:
        if live.is_waiting == is_waiting:
            return
        user, change = live.user, 1 if is_waiting else -1
        live.is_waiting = is_waiting
        user.num_waiting += change
        if user.num_waiting != is_waiting:  # others of this user wait
            return
        if now > self._changed:  # else the event of a step that came after a later arrival
            if self._num_waiting_users > 1:
                self._competing_s += now - self._changed
            self._changed = now
        self._num_waiting_users += change
        if is_waiting:
            user.since = self._competing_s
        else:
            user.competing_s += self._competing_s - user.since

    def latency_so_far_s(self, now: float) -> float:
        """The sum of latencies if every open request ended now: a lower bound."""
        ended = math.fsum(user.e2e_s for user in self._users.values())
        return ended + math.fsum(now - live.queued for live in self._live.values())

    def report(
        self, slo: Slo | None = None, rule_failures: tuple[str, ...] = (), replica_s: float | None = None
    ) -> Report:
        """The figures so far; open requests count as requests, with their tokens so far. `rule_failures`: of rules
        outside the engines; `replica_s`: seconds of all replicas."""
        done, total_s = self._done, max(0.0, self._ended - self._started)
        users = {name: user.share() for name, user in self._users.items()}
        good = None if slo is None else done.num_good(slo)
        num_output = sum(user.output_tokens for user in self._users.values())
        per_s = 1.0 / total_s if total_s > 0 else 0.0
        return Report(
            requests=self._num_requests,
            finished=len(done.e2e_s),
            failed=self._num_failed,
            aborted=self._num_aborted,
            steps=self._num_steps,
            decode_steps=self._num_decode_steps,
            total_s=total_s,
            prompt_tokens=sum(user.prompt_tokens for user in self._users.values()),
            output_tokens=num_output,
            requests_per_s=len(done.e2e_s) * per_s,
            output_tokens_per_s=num_output * per_s,
            ttft_s=Spread.of(done.ttft_s),
            tpot_s=Spread.of(done.tpot_s),
            e2e_s=Spread.of(done.e2e_s),
            queue_s=Spread.of(done.queue_s),
            preemptions=self._num_preempted,
            swaps=self._num_swapped,
            moves=self._num_moved,
            kv_moves=self._num_kv_moved,
            replica_s=replica_s,
            cache_hit_tokens=self._num_cached,
            cache_missed_tokens=self._num_missed,
            blocks=Level(self._sum_blocks / max(self._num_steps, 1), self._max_blocks),
            blocks_saved=Level(self._sum_saved / max(self._num_steps, 1), self._max_saved),
            rule_failures=(*self._rule_failures, *rule_failures),
            slo=slo,
            good=good,
            goodput_per_s=None if good is None else good * per_s,
            fairness=report.fairness(list(users.values())),
            users=users,
        )
