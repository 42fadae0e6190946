"""The engine's side of being watched: which front ends look on, and what they are due.

Always: whoever begins to look gets the whole at once, and then what each tick brought, until it looks away or is gone.
Nothing is made while nobody looks.
"""

import math
from collections.abc import Callable

from chairlift.core.ids import RequestId
from chairlift.live.wire.messages import Explain, Explained, FromEngine, Snapshot, Watch
from chairlift.live.wire.switchboard import FrontEnd
from chairlift.telemetry.watch.view import View


class WatchFeed:
    def __init__(self, view: View, send: Callable[[FrontEnd, FromEngine], None]) -> None:
        self._view = view
        self._send = send
        self._watching: dict[FrontEnd, None] = {}
        self._num_shown = 0  # ticks that those who look have had

    @property
    def wait_ms(self) -> int | None:
        """Until the next tick; None: for ever."""
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
        """What is new, if a tick is over; to be called after every step, and when one is due."""
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
