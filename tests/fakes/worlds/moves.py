"""A fault: requests leave one engine for another with their keys and values, at random moments or after some tokens.

Bytes are read from one runner's host memory and written to another's some steps later; some never come, and some
requests end while theirs are on the way. A block that is read too early, kept too short or put elsewhere shows as a
wrong token.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from chairlift.core.engine import Engine
from chairlift.core.events import Event, Exported, Finished, PromptScored
from chairlift.core.ids import RequestId
from chairlift.core.request import Progress, Request
from fakes.worlds.world import World


@dataclass
class _OnTheWay:
    due: int  # step
    engine: Engine
    request: RequestId
    data: bytes


class Moves:
    """Stands where a world has its engine, before several. `world.counts`: requests whose content "moved" or was
    "lost"; "moved tokens" need not be computed again."""

    def __init__(
        self, draw: Callable[[], World], rng: random.Random, goes: Callable[[Progress], bool], num_engines: int = 3,
        max_delay: int = 3, share_whole: float = 0.8,
    ) -> None:  # fmt: skip
        """`draw` makes the world of each further engine; `goes`: asked of each live request in each step; `max_delay`:
        in steps; `share_whole`: of the contents that come."""
        self._draw, self._rng, self._goes = draw, rng, goes
        self._num_engines, self._max_delay, self._share_whole = num_engines, max_delay, share_whole
        self._step = 0
        self._where: dict[RequestId, tuple[Engine, RequestId]] = {}  # by the first id; each engine gives another
        self._firsts: dict[RequestId, RequestId] = {}
        self._scored: set[RequestId] = set()  # first ids
        self._asked: set[RequestId] = set()
        self._left: set[RequestId] = set()  # their end where they were is no end
        self._on_the_way: list[_OnTheWay] = []
        self._ids = map(RequestId, count(10_000))

    def __call__(self, world: World) -> None:
        self._counts = world.counts
        self.engines = [world.engine, *(self._draw().engine for _ in range(1, self._num_engines))]
        assert len({engine.runner.host_memory.layout for engine in self.engines}) == 1  # type: ignore[attr-defined]
        world.others = [engine.scheduler for engine in self.engines[1:]]
        world.engine = self  # type: ignore[assignment]

    @property
    def has_work(self) -> bool:
        return bool(self._on_the_way) or any(engine.has_work for engine in self.engines)

    def add(self, samples: tuple[Request, ...]) -> None:
        engine = self._rng.choice(self.engines)
        engine.add(samples)
        for request in samples:
            self._place(request.id, engine, request.id)

    def abort(self, first: RequestId, has_moved: bool) -> None:
        """Wherever it is; there it ends."""
        engine, request = self._where[first]
        engine.abort(request)

    def step(self) -> list[Event]:
        for each in [each for each in self._on_the_way if each.due <= self._step]:
            self._arrive(each)
        self._ask()
        events = [event for engine in self.engines for event in self._events_of(engine)]
        self._step += 1
        return events

    def _place(self, first: RequestId, engine: Engine, request: RequestId) -> None:
        self._where[first] = engine, request
        self._firsts[request] = first

    def _ask(self) -> None:
        for engine, request in self._where.values():
            live = engine.scheduler.live
            if request in live and request not in self._asked and self._goes(live[request]):
                self._asked.add(request)
                engine.leave(request)

    def _events_of(self, engine: Engine) -> list[Event]:
        told: list[Event] = []
        for event in engine.step():
            told += self._as_told(event)
            if isinstance(event, Exported):
                self._asked.remove(event.request)
                if event.blocks and event.request in engine.scheduler.live:
                    self._move(engine, event)
        return told

    def _as_told(self, event: Event) -> list[Event]:
        is_end_of_move = isinstance(event, Finished) and event.request in self._left
        first = self._firsts.get(event.request, event.request)
        if isinstance(event, PromptScored):
            self._scored.add(first)
        return [] if is_end_of_move else [event._replace(request=first)]

    def _move(self, engine: Engine, event: Exported) -> None:
        progress = engine.scheduler.live[event.request]
        assert 0 < event.num_tokens < len(progress.tokens)
        memory = engine.runner.host_memory  # type: ignore[attr-defined]
        data = bytearray(len(event.blocks) * memory.block_bytes)
        memory.read(event.blocks, memoryview(data))
        request = self._moved(progress.request, progress.tokens, event.num_tokens)
        self._left.add(event.request)
        engine.abort(event.request)
        target = self._rng.choice([other for other in self.engines if other is not engine])
        self._place(self._firsts[event.request], target, request.id)
        target.add((request,))
        if target.scheduler.incoming(request.id):
            due = self._step + self._rng.randint(0, self._max_delay)
            self._on_the_way.append(_OnTheWay(due, target, request.id, bytes(data)))
            self._counts["moved tokens"] += event.num_tokens

    def _moved(self, request: Request, tokens: list[int], num_moved: int) -> Request:
        params = request.params
        if self._firsts[request.id] in self._scored:
            params = replace(params, prompt_logprobs=None)
        output = tuple(tokens[len(request.prompt) :])
        return replace(request, id=next(self._ids), params=params, output=output, num_moved=num_moved)

    def _arrive(self, arrival: _OnTheWay) -> None:
        self._on_the_way.remove(arrival)
        engine, is_whole = arrival.engine, self._rng.random() < self._share_whole
        memory, blocks = engine.runner.host_memory, engine.scheduler.incoming(arrival.request)  # type: ignore[attr-defined]
        num_come = len(blocks) if is_whole else self._rng.randint(0, len(blocks))
        memory.write(blocks[:num_come], memoryview(arrival.data)[: num_come * memory.block_bytes])
        self._counts["moved" if is_whole else "lost"] += 1
        engine.arrive(arrival.request, is_whole)


def moves_after(draw: Callable[[], World], num_tokens: int) -> Moves:
    """Each request goes once, after so many tokens, and all of it comes."""

    def goes(progress: Progress) -> bool:
        request = progress.request
        return not request.num_moved and len(progress.tokens) - len(request.prompt) >= num_tokens

    return Moves(draw, random.Random(0), goes, num_engines=2, max_delay=0, share_whole=1.0)
