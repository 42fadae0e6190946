"""Polls for the exit reason of a dead engine: its parent or node tells it, but not at once."""

import asyncio
from collections.abc import Callable

from chairlift.live.recovery.step_note import InterruptedWork

_LOOK_S = 0.02  # between two looks
# After so many without a word an engine counts as killed.
_MAX_LOOKS = 100
_REMOTE_LOOKS = 50

LookAtOne = Callable[[], InterruptedWork | None]  # what the engine was busy with; None: not known yet


class Looks:
    """Of each replica, by place."""

    def __init__(self, looks: list[LookAtOne], judge: Callable[[int, InterruptedWork], None]) -> None:
        """`looks`: of the replicas on this machine. `judge` is told, once for each `begin`, how the engine ended."""
        self._looks = [(look, _MAX_LOOKS) for look in looks]
        self._judge = judge
        self._next: dict[int, asyncio.TimerHandle] = {}

    def set(self, replica: int, look: LookAtOne) -> None:
        """Of a replica on another machine, in a place that is free or the next."""
        self._looks[replica : replica + 1] = [(look, _REMOTE_LOOKS)]

    def begin(self, replica: int) -> None:
        self._look(replica, self._looks[replica][1])

    def end(self, replica: int) -> None:
        """The word is no longer wanted."""
        if (following := self._next.pop(replica, None)) is not None:
            following.cancel()

    def _look(self, replica: int, num_left: int) -> None:
        left = self._looks[replica][0]()
        if left is None and num_left:
            loop = asyncio.get_running_loop()
            self._next[replica] = loop.call_later(_LOOK_S, self._look, replica, num_left - 1)
            return
        self._judge(replica, left or InterruptedWork({}, was_killed=True))
