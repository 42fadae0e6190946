"""One replica of a simulated fleet: an engine with a clock of its own, which stands at its next action."""

from collections.abc import Sequence

from chairlift.core.engine import Engine
from chairlift.core.events import Event
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Unobserved
from chairlift.core.request import Request
from chairlift.core.routing.news import PrefixNews
from chairlift.core.routing.queued import QueuedWork
from chairlift.core.routing.service import ServedWork
from chairlift.core.scheduling.pool import BlockPool
from chairlift.core.scheduling.resume import resume
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.core.scheduling.steady import Skipped
from chairlift.sim.clock import VirtualClock
from chairlift.sim.cost import CostModel
from chairlift.sim.runner import SimRunner
from chairlift.sim.skip_ahead import SkipAhead
from chairlift.telemetry.timeline import Timeline

NEVER = float("inf")


class _Observer(Unobserved):
    """Adds one replica to the timeline of all, and counts its queue."""

    def __init__(self, timeline: Timeline, pool: BlockPool) -> None:
        self.queued = QueuedWork()  # type: ignore[abstract]  # what it does not override does nothing
        self.service = ServedWork()  # type: ignore[abstract]  # likewise
        self._timeline = timeline
        self._pool = pool

    def planned(self, plan: StepPlan | None, now: float) -> None:
        if plan is not None:
            self._timeline.stepped(plan.num_decoding, self._pool.num_held, self._pool.num_shared)

    def happened(self, events: Sequence[Event]) -> None:
        self.queued.happened(events)
        self.service.happened(events)
        self._timeline.happened(events)

    def skipped(self, steps: Skipped) -> None:
        self._timeline.skipped(steps)


class Replica:
    def __init__(
        self, scheduler: Scheduler, cost: CostModel, depth: int, timeline: Timeline, span: int, skips: bool
    ) -> None:
        """`span`: tokens that a hash of its prefixes names; 0: none are told. `skips`: many steps at once."""
        self.wake_at = NEVER  # when it acts next
        self.is_draining = False
        self.num_taken = 0
        self.clock = VirtualClock()
        self.observer = _Observer(timeline, scheduler.pool)  # type: ignore[abstract]  # likewise
        runner = SimRunner(cost, scheduler.limits.block_size, self.clock, depth)
        self.engine = Engine(scheduler, runner, self.clock, self.observer)
        self.news = scheduler.pool.news = PrefixNews(span) if span else None
        self._skips = skips
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
        self.num_taken += 1
        self.engine.scheduler.add((request,), arrival)
        self.observer.queued.added((request,), arrival)
        self.observer.service.added((request,), arrival)
        if self.wake_at == NEVER:
            self.wake_at = now

    def wake(self, now: float) -> None:
        """What was planned is done."""
        self._ahead.catch_up(NEVER)
        self.clock.advance_to(now)
        self.wake_at = NEVER

    def act(self) -> None:
        """Makes a step, or finds many, unless one is to be planned later."""
        engine = self.engine
        if not engine.has_work:
            return
        # The last token of a prompt, computed as a decode is, still counts as queued: routers hear when it is done.
        if self._skips and not self.observer.queued.amount and self._ahead.find(NEVER):
            self.wake_at = self._ahead.end
            return
        engine.begin()
        if self.clock.now() < engine.plan_at:
            self.wake_at = engine.plan_at
            return
        engine.step()
        self.wake_at = self.clock.now()

    def leave(self) -> list[Request]:
        """All its requests, to go on elsewhere from their tokens."""
        scheduler = self.engine.scheduler
        left: list[Request] = []
        for progress in list(scheduler.live.values()):
            request = progress.request
            output = progress.tokens[len(request.prompt) :]
            left += [sample for group in resume([request], {request.sample_index: output}) for sample in group]
            scheduler.abort(request.id, self.clock.now())
        events = scheduler.take_events()
        self.observer.queued.happened(events)  # the timeline has them as moved
        self.observer.service.happened(events)
        return left
