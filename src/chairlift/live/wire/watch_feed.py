"""The engine's side of the live page: which front ends watch, and what each gets.

Always: a new watcher gets the whole view at once, then the news of each tick until it ends watching or is gone. Without
watchers nothing is made.
"""

import math
from collections.abc import Callable

from chairlift.core.ids import RequestId
from chairlift.live.wire.messages import Explain, Explained, FromEngine, Snapshot, Watch
from chairlift.live.wire.recipients import FrontEnd
from chairlift.telemetry.watch.view import View


class WatchFeed:
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
