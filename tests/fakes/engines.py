"""Engines that are checked after all that happens to them, and that plan at other moments."""

from chairlift.core.engine import Engine
from chairlift.core.events import Event
from chairlift.core.ids import RequestId
from chairlift.core.late_planning import AT_ONCE
from chairlift.core.request import Request
from chairlift.core.scheduling.invariants import check


class Checked(Engine):
    def abort(self, request: RequestId, has_moved: bool = False) -> None:
        super().abort(request, has_moved)
        check(self.scheduler)

    def arrive(self, request: RequestId, is_whole: bool) -> None:
        super().arrive(request, is_whole)
        check(self.scheduler)

    def step(self) -> list[Event]:
        events = super().step()
        check(self.scheduler)
        return events


class PlansAtOnce(Engine):
    """Never waits for arrivals."""

    can_begin = False  # type: ignore[assignment]
    plan_at = AT_ONCE  # type: ignore[assignment]


class BeginsFirst(Checked):
    """Requests arrive and leave while a step runs."""

    num_begun = 0

    def add(self, samples: tuple[Request, ...]) -> None:
        self._begin_first()
        super().add(samples)

    def abort(self, request: RequestId, has_moved: bool = False) -> None:
        self._begin_first()
        super().abort(request, has_moved)

    def _begin_first(self) -> None:
        self.num_begun += self.can_begin
        self.begin()
