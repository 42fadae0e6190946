"""What an engine tells its front ends beside outputs: its figures, and the live page to those that watch.

Always: a front end that has just come gets the figures at once, a new watcher the whole view. Without watchers nothing
is made for them.
"""

import math
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from chairlift.core.ids import RequestId
from chairlift.live.wire.messages import Explain, Explained, FromEngine, Snapshot, Told, Watch
from chairlift.live.wire.recipients import FrontEnd
from chairlift.telemetry.metrics.engine import EngineMetrics
from chairlift.telemetry.metrics.figures import Figures
from chairlift.telemetry.watch.view import View

PERIOD_S = 1.0


class FiguresFeed:
    """Figures go out each second that changes them, and the last before the engine idles."""

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


class WatchFeed:
    """After the whole view come the news of each tick, until a front end ends watching or is gone."""

    def __init__(self, view: View, send: Callable[[FrontEnd, FromEngine], None]) -> None:
        self._view = view
        self._send = send
        self._watching: dict[FrontEnd, None] = {}
        self._num_shown = 0  # ticks that the watchers have had

    @property
    def wait_ms(self) -> int | None:
        """Until the next tick; None without watchers."""
        return math.ceil(1000 * self._view.due_s) if self._watching else None

    def hear(self, front_end: FrontEnd, message: Watch | Explain) -> None:
        if isinstance(message, Explain):
            self._send(front_end, Explained(message.request, self._view.explain(RequestId(message.request))))
        elif not message.is_on:
            self.drop(front_end)
        else:
            self.show()
            if not self._watching:
                self._num_shown = self._view.num_ticks
            self._watching[front_end] = None
            self._send(front_end, Snapshot(True, self._view.whole()))

    def show(self) -> None:
        """Sends the news if a tick is over; called after every step, and when a tick is due."""
        if not self._watching:
            return
        self._view.advance()
        num_new = self._view.num_ticks - self._num_shown
        if num_new:
            self._num_shown = self._view.num_ticks
            news = Snapshot(False, self._view.news(num_new))
            for front_end in list(self._watching):
                self._send(front_end, news)

    def drop(self, front_end: FrontEnd) -> None:
        self._watching.pop(front_end, None)
