"""Short requests first without knowing lengths: long-running ones sink, starving ones rise.

Skip-join multi-level feedback queues: a request joins the first level whose tokens hold its prompt, and sinks one level
when it has used that level's tokens up. While the running set is full and requests wait on better levels, the running
requests on the worst levels are preempted for them.

    level    risen     1        2          3      ...   levels
    tokens  quantum  quantum  x rate   x rate^2       no end

Bound: after `starve` seconds of waiting a request rises above all levels, in the order in which requests began to
wait, and has `quantum` tokens before it sinks; no request is preempted for another before it gets a token.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

from chairlift.core.ids import RequestId
from chairlift.core.policy import Policy, RequestView

_MAX_LEVELS, _MAX_RATE = 32, 1e6


class Mlfq(Policy):
    skips_steady = True

    def __init__(self, levels: int = 6, quantum: int = 64, rate: float = 2.0, starve: float = 10.0) -> None:
        if not 1 <= levels <= _MAX_LEVELS or quantum < 1 or not 1 <= rate <= _MAX_RATE or starve <= 0:
            most = f"levels at most {_MAX_LEVELS}, rate at most {_MAX_RATE:g}"
            raise ValueError(f"levels, quantum and rate must be at least 1, starve above 0, {most}")
        self._starve = starve
        self._tokens = [float(quantum), *(quantum * rate**i for i in range(levels - 1)), math.inf]
        # Waiting requests by level, and since when they wait.
        self._queues: list[OrderedDict[RequestId, float]] = [OrderedDict() for _ in self._tokens]
        self._level: dict[RequestId, int] = {}
        self._rest: dict[RequestId, float] = {}  # tokens until it sinks, of requests that have been served

    def _level_of(self, view: RequestView) -> int:
        level = self._level.get(view.id)
        if level is None:
            num_prompt = len(view.request.prompt)
            level = next(i for i, tokens in enumerate(self._tokens) if i and tokens >= num_prompt)
            self._level[view.id] = level
        return level

    def push(self, view: RequestView, now: float) -> None:
        self._queues[self._level_of(view)][view.id] = now

    def _raise_starving(self, now: float, most: int) -> None:
        """Raise starving requests until so many have risen."""
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

    def remove(self, view: RequestView) -> None:
        del self._queues[self._level[view.id]][view.id]

    def served(self, view: RequestView, num_prompt: int, num_output: int) -> None:
        level = self._level_of(view)
        # Tokens that are recomputed after a preemption are no gain.
        num_used = num_output + (0 if view.num_preempted else num_prompt)
        rest = self._rest.get(view.id, self._tokens[level]) - num_used
        if rest <= 0:
            self._level[view.id] = level + 1
            rest = self._tokens[level + 1]
        self._rest[view.id] = rest

    def decoded(self, views: Sequence[RequestView]) -> None:
        rests = self._rest
        for view in views:
            request = view.request.id
            rest = rests.get(request, 0.0)
            if rest > 1.0:
                rests[request] = rest - 1.0
            else:  # new, or about to sink
                self.served(view, 0, 1)

    def left(self, view: RequestView) -> None:
        self._level.pop(view.id, None)
        self._rest.pop(view.id, None)

    def yielding(self, running: Sequence[RequestView], now: float) -> Sequence[RequestId]:
        """One running request, the worst first, for each that waits on a better level."""
        self._raise_starving(now, len(running))
        best = next(level for level, queue in enumerate(self._queues) if queue)
        levels = self._level
        below = [s for s in running if (levels.get(s.request.id) or self._level_of(s)) > best]
        # A request that is still in its prompt has no token yet.
        able = [s for s in below if s.num_known - s.num_computed == 1]
        waiting = chain.from_iterable(repeat(level, len(queue)) for level, queue in enumerate(self._queues))
        worst = sorted(able, key=lambda s: (self._level_of(s), s.arrival, s.id), reverse=True)
        return [s.id for s, level in zip(worst, waiting, strict=False) if self._level_of(s) > level]

    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        """The request on the worst level, ties by the newest."""
        return max(running, key=lambda s: (self._level_of(s), s.arrival, s.id)).id
