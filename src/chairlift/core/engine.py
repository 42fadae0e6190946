"""The engine: a scheduler and a runner joined by plans; live, in simulation and in tests alike.

`step` alone serves all requests, and never sleeps. Where more may arrive while a step runs, call `begin` and add what
arrives until `plan_at`, then `step`: with a runner that takes two plans, arrivals are then in the next step, and not in
the one after it.
"""

from collections import deque
from collections.abc import Sequence

from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.late_planning import AT_ONCE, LatePlanning
from chairlift.core.plan import StepPlan
from chairlift.core.policy import Service
from chairlift.core.ports import Clock, Observer, Runner, RunnerFailed, RunnerFull, Unobserved
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler


class Engine:
    def __init__(self, scheduler: Scheduler, runner: Runner, clock: Clock, observer: Observer | None = None) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self.observer = observer or Unobserved()  # type: ignore[abstract]  # empty methods are what it is for
        self._in_flight: deque[StepPlan] = deque()
        self._late_planning = LatePlanning()
        self._planned = 0.0  # when the last planning began

    @property
    def has_work(self) -> bool:
        return bool(self._in_flight or self.scheduler.has_work)

    @property
    def plan_at(self) -> float:
        """The moment at which `step` should be called, as far as is known now; past where there is nothing to wait for.
        It may be sooner once a request has been added."""
        return self._late_planning.moment(self._expects_prompts) if len(self._in_flight) == 1 else AT_ONCE

    @property
    def _expects_prompts(self) -> bool:
        """Whether the step after the one in flight has prompts to compute, as far as is easily known."""
        plan, scheduler = self._in_flight[0], self.scheduler
        may_enter = len(scheduler.running) < scheduler.limits.max_running
        return (may_enter and bool(scheduler.waiting or scheduler.preempted)) or any(
            not chunk.samples for chunk in plan.chunks[plan.num_decoding :]
        )

    def _expect(self) -> None:
        if self._plans_late and len(self._in_flight) == 1:
            self._late_planning.expect(self._expects_prompts)

    @property
    def _plans_late(self) -> bool:
        """With one plan there is none to hold back; three would wait for two steps."""
        return self.runner.depth == 2

    def add(self, samples: tuple[Request, ...]) -> None:
        now = self.clock.now()
        self.scheduler.add(samples, now)
        self.observer.added(samples, now)

    def abort(self, request: RequestId, has_moved: bool = False) -> None:
        now = self.clock.now()
        self.scheduler.abort(request, now, has_moved)
        self.observer.aborted(request, now, has_moved)

    def leave(self, request: RequestId) -> None:
        now = self.clock.now()
        self.scheduler.leave(request, now)
        self.observer.leaving(request, now)

    def arrive(self, request: RequestId, is_whole: bool) -> None:
        now = self.clock.now()
        self.scheduler.arrive(request, is_whole, now)
        self.observer.arrived(request, is_whole, now)

    def served_elsewhere(self, services: Sequence[Service]) -> None:
        now = self.clock.now()
        self.scheduler.served_elsewhere(services, now)
        self.observer.served_elsewhere(services, now)

    @property
    def can_begin(self) -> bool:
        """The runner takes two plans and has none."""
        return self._plans_late and not self._in_flight and self.scheduler.has_work

    def begin(self) -> None:
        """Submit a plan if the runner has none: it runs while the next waits for arrivals."""
        if self.can_begin and (plan := self._plan()):
            self._submit(plan)
            self._expect()

    def step(self) -> list[Event]:
        """Submit plans up to the runner's depth, collect the oldest, and return what happened."""
        has_room = True
        while has_room and len(self._in_flight) < self.runner.depth and (plan := self._plan()):
            has_room = self._submit(plan)
        # A step that did not fit may have overwritten what the runner sampled last: collect every token first.
        events = self._collect_oldest(min(1, len(self._in_flight)) if has_room else len(self._in_flight))
        self._expect()
        return events

    def settle(self) -> list[Event]:
        """Collect all that is in flight, and return what happened."""
        return self._collect_oldest(len(self._in_flight))

    def _collect_oldest(self, count: int) -> list[Event]:
        for _ in range(count):
            self._collect(self._in_flight.popleft())
        events = self.scheduler.take_events()
        self.observer.happened(events)
        return events

    def _plan(self) -> StepPlan | None:
        now = self._planned = self.clock.now()
        plan = self.scheduler.schedule(now)
        self.observer.planned(plan, now)
        return plan

    def _submit(self, plan: StepPlan) -> bool:
        """False when it did not fit the runner's memory."""
        try:
            self.runner.submit(plan)
        except RunnerFull as error:
            now = self.clock.now()
            self.scheduler.roll_back(plan, str(error), now)
            self.observer.rolled_back(plan, str(error), now)
            return False
        except RunnerFailed as error:
            self._fail(plan, str(error))
        except BaseException as error:  # an interrupt or a bug: leave a consistent scheduler to the handler
            self._fail(plan, f"the step was broken off ({type(error).__name__})")
            raise
        else:
            self._in_flight.append(plan)
            if self._plans_late:
                self._late_planning.submitted(plan, self._planned, self.clock.now())
        return True

    def _collect(self, plan: StepPlan) -> None:
        try:
            result = self.runner.collect()
        except RunnerFailed as error:
            self._fail(plan, str(error))
            if self._plans_late:
                self._late_planning.failed(self.clock.now())
            return
        now = self.clock.now()
        if self._plans_late:
            self._late_planning.ended(result.was_ready, now)
        self.scheduler.commit(plan, result, now)
        self.observer.committed(plan, result, now)

    def _fail(self, plan: StepPlan, message: str) -> None:
        now = self.clock.now()
        self.scheduler.fail(plan, message, now)
        self.observer.failed(plan, message, now)
