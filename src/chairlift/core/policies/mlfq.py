"""Short work first without knowing lengths: what runs long sinks, what starves rises.

Skip-join multi-level feedback: a request joins the first level whose tokens hold its prompt, skipping those above, and
sinks one when it has used a level's tokens up. While better ones wait and all seats are taken, the worst running ones
step off for them.

    level    risen     1        2          3      ...   levels
    tokens  quantum  quantum  x rate   x rate^2       no end

Bound: who has waited `starve` seconds rises above all levels, in the order in which they began to wait, and has
`quantum` tokens before sinking; nobody steps off before getting a token.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

from chairlift.core.ids import RequestId
from chairlift.core.policy import Standing

_MAX_LEVELS, _MAX_RATE = 32, 1e6


class Mlfq:
    def __init__(self, levels: int = 6, quantum: int = 64, rate: float = 2.0, starve: float = 10.0) -> None:
        if not 1 <= levels <= _MAX_LEVELS or quantum < 1 or not 1 <= rate <= _MAX_RATE or starve <= 0:
            most = f"levels at most {_MAX_LEVELS}, rate at most {_MAX_RATE:g}"
            raise ValueError(f"levels, quantum and rate must be at least 1, starve above 0, {most}")
        self._starve = starve
        self._tokens = [float(quantum), *(quantum * rate**i for i in range(levels - 1)), math.inf]
        self._queues: list[OrderedDict[RequestId, float]] = [OrderedDict() for _ in self._tokens]  # since when
        self._level: dict[RequestId, int] = {}
        self._rest: dict[RequestId, float] = {}  # tokens until it sinks, of who has been served

    def _level_of(self, standing: Standing) -> int:
        level = self._level.get(standing.id)
        if level is None:
            num_prompt = len(standing.request.prompt)
            level = next(i for i, tokens in enumerate(self._tokens) if i and tokens >= num_prompt)
            self._level[standing.id] = level
        return level

    def push(self, standing: Standing, now: float) -> None:
        self._queues[self._level_of(standing)][standing.id] = now

    def _raise_starving(self, now: float, most: int) -> None:
        """Until so many have risen."""
        while len(self._queues[0]) < most:
            heads = ((next(iter(queue.values())), i) for i, queue in enumerate(self._queues) if i and queue)
            since, level = min(heads, default=(now, 0))
            if now - since < self._starve:
                return
            request, _ = self._queues[level].popitem(last=False)
            self._queues[0][request] = since
            self._level[request] = 0
            self._rest.pop(request, None)

    def first(self, now: float) -> RequestId | None:
        self._raise_starving(now, 1)
        return next((next(iter(queue)) for queue in self._queues if queue), None)

    def remove(self, standing: Standing) -> None:
        del self._queues[self._level[standing.id]][standing.id]

    def served(self, standing: Standing, num_prompt: int, num_output: int) -> None:
        level = self._level_of(standing)
        # What is computed again after stepping off is nothing the request gains.
        num_used = num_output + (0 if standing.num_preempted else num_prompt)
        rest = self._rest.get(standing.id, self._tokens[level]) - num_used
        if rest <= 0:
            self._level[standing.id] = level + 1
            rest = self._tokens[level + 1]
        self._rest[standing.id] = rest

    def decoded(self, standings: Sequence[Standing]) -> None:
        rests = self._rest
        for standing in standings:
            request = standing.request.id
            rest = rests.get(request, 0.0)
            if rest > 1.0:
                rests[request] = rest - 1.0
            else:  # new, or about to sink
                self.served(standing, 0, 1)

    def left(self, standing: Standing) -> None:
        self._level.pop(standing.id, None)
        self._rest.pop(standing.id, None)

    def yielding(self, running: Sequence[Standing], now: float) -> Sequence[RequestId]:
        """One of the worst running for each that waits on a better level."""
        self._raise_starving(now, len(running))
        best = next(level for level, queue in enumerate(self._queues) if queue)
        levels = self._level
        below = [s for s in running if (levels.get(s.request.id) or self._level_of(s)) > best]
        # Who still computes its prompt has not got a token yet.
        able = [s for s in below if s.num_known - s.num_computed == 1]
        waiting = chain.from_iterable(repeat(level, len(queue)) for level, queue in enumerate(self._queues))
        worst = sorted(able, key=lambda s: (self._level_of(s), s.arrival, s.id), reverse=True)
        return [s.id for s, level in zip(worst, waiting, strict=False) if self._level_of(s) > level]

    def victim(self, running: Iterable[Standing], now: float) -> RequestId:
        """The one on the worst level, of those the newest."""
        return max(running, key=lambda s: (self._level_of(s), s.arrival, s.id)).id
