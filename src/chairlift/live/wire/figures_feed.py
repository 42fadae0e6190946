"""An engine's figures for its front ends: each second that changes them, and the last before it idles.

Always: a front end that has just come gets them at once.
"""

import math
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from chairlift.live.wire.messages import FromEngine, Told
from chairlift.live.wire.recipients import FrontEnd
from chairlift.telemetry.metrics.engine import EngineMetrics
from chairlift.telemetry.metrics.figures import Figures

PERIOD_S = 1.0


class FiguresFeed:
    def __init__(
        self,
        counting: EngineMetrics,
        now: Callable[[], float],
        send: Callable[[FrontEnd, FromEngine], None],
    ) -> None:
        self._counting, self._now, self._send = counting, now, send
        self._told = Figures()
        self._due = now()

    def _figures(self) -> Figures:
        return replace(self._counting.figures(), histograms=self._counting.histograms())

    @property
    def wait_ms(self) -> int | None:
        """Until they are to be told; None: nothing has changed."""
        if self._figures() == self._told:
            return None
        return max(0, math.ceil(1000 * (self._due - self._now())))

    def welcome(self, front_end: FrontEnd) -> None:
        self._send(front_end, Told(self._figures()))

    def show(self, front_ends: Iterable[FrontEnd], is_urgent: bool = False) -> None:
        """Called after every step, and when they are due. `is_urgent`: or at once."""
        now = self._now()
        if now < self._due and not is_urgent:
            return
        self._due = now + PERIOD_S
        figures = self._figures()
        if figures != self._told:
            self._told = figures
            for front_end in list(front_ends):
                self._send(front_end, Told(figures))
