"""One replica of a simulated fleet: an engine with a clock of its own, which stands at its next action."""

from collections.abc import Sequence
from dataclasses import replace

from chairlift.core.engine import Engine
from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.memory.pool import BlockPool
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Unobserved
from chairlift.core.request import Progress, Request, resume
from chairlift.core.routing.queued import QueuedWork
from chairlift.core.routing.service import ServedWork
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.core.scheduling.steady import Skipped
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.runner import SimRunner, VirtualClock
from chairlift.lab.sim.skip_ahead import SkipAhead
from chairlift.telemetry.timeline import Timeline

NEVER = float("inf")


class _Observer(Unobserved):
    """Adds one replica to the timeline of all, and counts its queue. Of a prefill replica it keeps what happened."""

    def __init__(self, timeline: Timeline, pool: BlockPool, is_prefill: bool) -> None:
        self.queued = QueuedWork()  # type: ignore[abstract]  # what it does not override does nothing
        self.service = ServedWork()  # type: ignore[abstract]  # likewise
        self._timeline = timeline
        self._pool = pool
        self._is_prefill = is_prefill
        self._told: list[Event] = []

    def take_told(self) -> list[Event]:
        """What happened in a prefill replica since the last call."""
        told, self._told = self._told, []
        return told

    def planned(self, plan: StepPlan | None, now: float) -> None:
        if plan is not None:
            self._timeline.stepped(plan.num_decoding, self._pool.num_held, self._pool.num_shared)

    def happened(self, events: Sequence[Event]) -> None:
        self.queued.happened(events)
        self.service.happened(events)
        self._timeline.happened(events)
        if self._is_prefill:
            self._told += events

    def arrived(self, request: RequestId, is_whole: bool, now: float) -> None:
        self._timeline.arrived(request, is_whole, now)

    def skipped(self, steps: Skipped) -> None:
        self._timeline.skipped(steps)


class Replica:
    def __init__(
        self,
        scheduler: Scheduler,
        cost: CostModel,
        depth: int,
        timeline: Timeline,
        skips: bool,
        is_prefill: bool = False,
    ) -> None:
        """`skips`: many steps at once, but not in a prefill replica, which requests leave after any step."""
        self.wake_at = NEVER  # when it acts next
        self._is_waiting = False  # until a step is to be planned
        self.is_draining = False
        self.num_taken = 0
        self.clock = VirtualClock()
        self.observer = _Observer(timeline, scheduler.pool, is_prefill)  # type: ignore[abstract]  # likewise
        runner = SimRunner(cost, scheduler.limits.block_size, self.clock, depth)
        self.engine = Engine(scheduler, runner, self.clock, self.observer)
        self.news = scheduler.pool.news
        self._is_prefill = is_prefill
        self._skips = skips and not is_prefill
        self._ahead = SkipAhead(self.engine, self.clock, cost, self.observer)

    @property
    def num_live(self) -> int:
        return len(self.engine.scheduler.live)

    def interrupt(self, now: float) -> None:
        """Something happens now: makes the steps planned before, and acts next when the last of them ends."""
        if self._ahead.is_ahead:
            self._ahead.catch_up(now)
            self.wake_at = self.clock.now()

    def take(self, request: Request, arrival: float, now: float) -> None:
        self.interrupt(now)
        self.clock.advance_to(now)
        if self._is_prefill and request.output:  # it may have been here, and be in a plan in flight
            self.engine.settle()
        self.num_taken += 1
        self.engine.scheduler.add((request,), arrival)
        self.observer.queued.added((request,), arrival)
        self.observer.service.added((request,), arrival)
        self._heard(now)

    def wake(self, now: float) -> None:
        """What was planned is done."""
        self._ahead.catch_up(NEVER)
        self.clock.advance_to(now)
        self.wake_at, self._is_waiting = NEVER, False

    def act(self) -> None:
        """Makes a step, or finds many, unless one is to be planned later."""
        engine = self.engine
        if not engine.has_work:
            return
        # The last token of a prompt, computed as a decode is, still counts as queued: routers hear when it is done.
        is_settled = self._skips and self.observer.queued.is_all_of(engine.scheduler.arriving)
        if is_settled and self._ahead.find(NEVER):
            self.wake_at = self._ahead.end
            return
        engine.begin()
        if self.clock.now() < engine.plan_at:
            self.wake_at, self._is_waiting = engine.plan_at, True
            return
        engine.step()
        self.wake_at = self.clock.now()

    def leave(self) -> list[Request]:
        """All its requests, to go on elsewhere from their tokens, once steps that have begun are over."""
        self.engine.settle()
        scheduler = self.engine.scheduler
        for arriving in list(scheduler.arriving):
            scheduler.arrive(arriving, False, self.clock.now())
        return [self._end(progress) for progress in list(scheduler.live.values())]

    def let_go(self, request: RequestId, num_tokens: int, now: float) -> Request | None:
        """A request, to go on elsewhere with the keys and values of so many tokens; None: it has ended."""
        self.clock.advance_to(now)
        progress = self.engine.scheduler.live.get(request)
        return None if progress is None else self._end(progress, num_tokens)

    def arrive(self, request: RequestId, is_whole: bool, now: float) -> None:
        """The keys and values of a request came, or will not."""
        self.interrupt(now)
        self.clock.advance_to(now)
        self.engine.arrive(request, is_whole)
        self._heard(now)

    def _heard(self, now: float) -> None:
        """There is something to do, perhaps sooner than was known."""
        if self.wake_at == NEVER:
            self.wake_at, self._is_waiting = now, False
        elif self._is_waiting:
            self.wake_at = max(now, self.clock.now(), self.engine.plan_at)

    def _end(self, progress: Progress, num_moved: int = 0) -> Request:
        """Ends a request here; what is left of it."""
        scheduler, request = self.engine.scheduler, progress.request
        self.observer.happened(scheduler.take_events())  # of a plan in flight
        output = progress.tokens[len(request.prompt) :]
        ((left,),) = resume([replace(request, num_moved=num_moved)], {request.sample_index: output})
        scheduler.abort(request.id, self.clock.now(), has_moved=True)
        events = scheduler.take_events()
        self.observer.queued.happened(events)  # the timeline has it as moved
        self.observer.service.happened(events)
        return left
