"""The engine: a scheduler and a runner joined by plans; live, in simulation and in tests alike."""

from collections import deque

from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Clock, Observer, Runner, RunnerFailed, RunnerFull
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler


class Engine:
    def __init__(self, scheduler: Scheduler, runner: Runner, clock: Clock, observer: Observer | None = None) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self.observer = observer
        self._in_flight: deque[StepPlan] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.live or self._in_flight)

    def add(self, samples: tuple[Request, ...]) -> None:
        now = self.clock.now()
        self.scheduler.add(samples, now)
        if self.observer is not None:
            self.observer.added(samples, now)

    def abort(self, request: RequestId) -> None:
        now = self.clock.now()
        self.scheduler.abort(request, now)
        if self.observer is not None:
            self.observer.aborted(request, now)

    def step(self) -> list[Event]:
        """Keeps the runner supplied, waits for its oldest step, and says what happened."""
        has_room = True
        while has_room and len(self._in_flight) < self.runner.depth and (plan := self._plan()):
            has_room = self._submit(plan)
        # The runner cannot be asked for what it sampled last after a step that did not fit: all of it must be known.
        for _ in range(min(1, len(self._in_flight)) if has_room else len(self._in_flight)):
            self._collect(self._in_flight.popleft())
        events = self.scheduler.take_events()
        if self.observer is not None:
            self.observer.happened(events)
        return events

    def _plan(self) -> StepPlan | None:
        now = self.clock.now()
        plan = self.scheduler.schedule(now)
        if self.observer is not None:
            self.observer.planned(plan, now)
        return plan

    def _submit(self, plan: StepPlan) -> bool:
        """False when it did not fit the runner's memory."""
        try:
            self.runner.submit(plan)
        except RunnerFull as error:
            self._roll_back(plan, str(error))
            return False
        except RunnerFailed as error:
            self._fail(plan, str(error))
        except (
            BaseException
        ) as error:  # an interrupt or a bug: whoever catches it goes on with a scheduler that is whole
            self._fail(plan, f"the step was broken off ({type(error).__name__})")
            raise
        else:
            self._in_flight.append(plan)
        return True

    def _collect(self, plan: StepPlan) -> None:
        try:
            result = self.runner.collect()
        except RunnerFailed as error:
            self._fail(plan, str(error))
            return
        now = self.clock.now()
        self.scheduler.commit(plan, result, now)
        if self.observer is not None:
            self.observer.committed(plan, result, now)

    def _roll_back(self, plan: StepPlan, message: str) -> None:
        now = self.clock.now()
        self.scheduler.roll_back(plan, message, now)
        if self.observer is not None:
            self.observer.rolled_back(plan, message, now)

    def _fail(self, plan: StepPlan, message: str) -> None:
        now = self.clock.now()
        self.scheduler.fail(plan, message, now)
        if self.observer is not None:
            self.observer.failed(plan, message, now)
