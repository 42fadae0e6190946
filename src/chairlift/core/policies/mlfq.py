"""Skip-join multi-level feedback: short work first without knowing lengths; what runs long sinks, what starves rises.

A request joins the level its prompt's length earns (it skips those above). After being served a level's tokens it sinks
one level; while requests of better levels wait and all seats are taken, the worst running one steps off for them. One
that has waited `starve` seconds goes first.

    level      0      1      2      3      4
    tokens   quantum  x2     x4     x8    ...
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from chairlift.core.ids import RequestId
from chairlift.core.policy import Standing


class Mlfq:
    def __init__(self, levels: int = 6, quantum: int = 64, starve: float = 10.0) -> None:
        if levels < 1 or quantum < 1 or starve <= 0:
            raise ValueError("levels and quantum must be at least 1, starve above 0")
        self._quantum = quantum
        self._starve = starve
        self._queues: list[OrderedDict[RequestId, float]] = [OrderedDict() for _ in range(levels)]  # since when
        self._level: dict[RequestId, int] = {}
        self._used: dict[RequestId, int] = {}

    def _level_of(self, standing: Standing) -> int:
        if standing.id not in self._level:
            self._level[standing.id] = self._entry(standing)
        return self._level[standing.id]

    def _entry(self, standing: Standing) -> int:
        size, level = self._quantum, 0
        while size < len(standing.request.prompt) and level < len(self._queues) - 1:
            size, level = 2 * size, level + 1
        return level

    def push(self, standing: Standing, now: float) -> None:
        self._queues[self._level_of(standing)][standing.id] = now

    def first(self, now: float) -> RequestId | None:
        for queue in self._queues[1:]:  # the first of a level has waited longest there
            if queue and now - next(iter(queue.values())) >= self._starve:
                return next(iter(queue))
        return next((next(iter(queue)) for queue in self._queues if queue), None)

    def remove(self, standing: Standing) -> None:
        del self._queues[self._level[standing.id]][standing.id]

    def served(self, standing: Standing, num_prompt: int, num_output: int) -> None:
        level = self._level_of(standing)
        used = self._used.get(standing.id, 0) + num_prompt + num_output
        if used >= self._quantum << level and level < len(self._queues) - 1:
            self._level[standing.id], used = level + 1, 0
        self._used[standing.id] = used

    def left(self, standing: Standing) -> None:
        self._level.pop(standing.id, None)
        self._used.pop(standing.id, None)

    def yielding(self, running: Sequence[Standing], now: float) -> Sequence[RequestId]:
        """As many of the worst running requests as there are better ones waiting, one level apart at least."""
        waiting = [level for level, queue in enumerate(self._queues) for _ in range(min(len(queue), len(running)))]
        worst = sorted(running, key=lambda s: (-self._level_of(s), -s.arrival, -s.id))
        return [s.id for s, level in zip(worst, waiting, strict=False) if self._level_of(s) > level]

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The one on the worst level, of those the newest."""
        return max(running, key=lambda s: (self._level_of(s), s.arrival, s.id)).id
