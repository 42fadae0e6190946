"""Several observers as one."""

from collections.abc import Sequence

from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.policy import Service
from chairlift.core.ports import Observer
from chairlift.core.request import Request


class Observers:
    def __init__(self, *each: Observer) -> None:
        self._each = each

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        for observer in self._each:
            observer.added(samples, now)

    def aborted(self, request: RequestId, now: float, has_moved: bool) -> None:
        for observer in self._each:
            observer.aborted(request, now, has_moved)

    def leaving(self, request: RequestId, now: float) -> None:
        for observer in self._each:
            observer.leaving(request, now)

    def arrived(self, request: RequestId, is_whole: bool, now: float) -> None:
        for observer in self._each:
            observer.arrived(request, is_whole, now)

    def served_elsewhere(self, services: Sequence[Service], now: float) -> None:
        for observer in self._each:
            observer.served_elsewhere(services, now)

    def planned(self, plan: StepPlan | None, now: float) -> None:
        for observer in self._each:
            observer.planned(plan, now)

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None:
        for observer in self._each:
            observer.committed(plan, result, now)

    def failed(self, plan: StepPlan, message: str, now: float) -> None:
        for observer in self._each:
            observer.failed(plan, message, now)

    def rolled_back(self, plan: StepPlan, message: str, now: float) -> None:
        for observer in self._each:
            observer.rolled_back(plan, message, now)

    def happened(self, events: Sequence[Event]) -> None:
        for observer in self._each:
            observer.happened(events)
