"""The engine: a scheduler and a runner joined by plans; live, in simulation and in tests alike."""

from collections import deque

from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Clock, Runner, RunnerFailed
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler


class Engine:
    def __init__(self, scheduler: Scheduler, runner: Runner, clock: Clock) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self._in_flight: deque[StepPlan] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.live or self._in_flight)

    def add(self, samples: tuple[Request, ...]) -> None:
        self.scheduler.add(samples, self.clock.now())

    def abort(self, request: RequestId) -> None:
        self.scheduler.abort(request, self.clock.now())

    def step(self) -> list[Event]:
        """Keeps the runner supplied, waits for its oldest step, and says what happened."""
        while len(self._in_flight) < self.runner.depth and (plan := self.scheduler.schedule(self.clock.now())):
            self._submit(plan)
        if self._in_flight:
            self._collect(self._in_flight.popleft())
        return self.scheduler.take_events()

    def _submit(self, plan: StepPlan) -> None:
        try:
            self.runner.submit(plan)
        except RunnerFailed as error:
            self.scheduler.fail(plan, str(error), self.clock.now())
        else:
            self._in_flight.append(plan)

    def _collect(self, plan: StepPlan) -> None:
        try:
            result = self.runner.collect()
        except RunnerFailed as error:
            self.scheduler.fail(plan, str(error), self.clock.now())
        else:
            self.scheduler.commit(plan, result, self.clock.now())
