"""A random world of several engines, in which requests leave one for another with their keys and values.

Bytes are read from one ledger's host memory and written to another's some steps later; some never come, and some
requests end while theirs are on the way. A block that is read too early, kept too short or put elsewhere shows as a
wrong token.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from chairlift.core.events import Event, Exported, Finished, PromptScored
from chairlift.core.ids import RequestId
from chairlift.core.request import Request
from chairlift.core.scheduling.invariants import check
from fakes.world import World, random_world

_NUM_ENGINES = 3


@dataclass
class _OnTheWay:
    due: int  # step
    world: World
    request: RequestId
    data: bytes


class MovedWorld:
    def __init__(self, seed: int, share: float, make: Callable[..., World] = random_world, **more: bool) -> None:
        """`share`: of the live requests that are asked to leave in a step. `make`: each engine's world."""
        self.worlds = [make(seed, **more) for _ in range(_NUM_ENGINES)]
        self.num_moved = self.num_lost = 0  # requests whose content came, and did not
        self._share = share
        self._rng = random.Random(-seed)
        self._where: dict[RequestId, tuple[World, RequestId]] = {}  # by the first id; each engine gives another
        self._firsts: dict[RequestId, RequestId] = {}
        self._asked: dict[RequestId, None] = {}
        self._left: dict[RequestId, None] = {}  # their end where they were is no end
        self._on_the_way: list[_OnTheWay] = []
        self._ids = map(RequestId, count(10_000))

    def run(self) -> None:
        script = self.worlds[0]
        step, last = 0, max([0, *script.arrivals, *script.aborts])
        while step <= last or self._on_the_way or any(world.engine.has_work for world in self.worlds):
            assert step < 5000, "the world does not end"
            for samples in script.arrivals.get(step, ()):
                world = self._rng.choice(self.worlds)
                world.engine.add(samples)
                for request in samples:
                    self._place(request.id, world, request.id)
            for first in script.aborts.get(step, ()):
                world, request = self._where[first]
                world.engine.abort(request)
            for each in [each for each in self._on_the_way if each.due <= step]:
                self._arrive(each)
            self._ask()
            for world in self.worlds:
                self._step(world, step)
            step += 1
        script._check_outputs()
        for world in self.worlds:
            assert world.scheduler.pool.num_free == world.limits.num_blocks, "blocks leaked"
            world.scheduler.tables.begin()
            host = world.scheduler.tables.host
            assert host.num_free == host.num_blocks, "host blocks leaked"

    def _place(self, first: RequestId, world: World, request: RequestId) -> None:
        self._where[first] = world, request
        self._firsts[request] = first

    def _ask(self) -> None:
        for world, request in self._where.values():
            if request in world.scheduler.live and request not in self._asked and self._rng.random() < self._share:
                self._asked[request] = None
                world.engine.leave(request)

    def _step(self, world: World, step: int) -> None:
        events = world.engine.step()
        check(world.scheduler)
        for event in events:
            self.worlds[0].events += self._as_told(event)
            if isinstance(event, Exported):
                del self._asked[event.request]
                if event.blocks and event.request in world.scheduler.live:
                    self._move(world, event, step)
                    check(world.scheduler)

    def _as_told(self, event: Event) -> list[Event]:
        is_end_of_move = isinstance(event, Finished) and event.request in self._left
        first = self._firsts.get(event.request, event.request)
        return [] if is_end_of_move else [event._replace(request=first)]

    def _move(self, world: World, event: Exported, step: int) -> None:
        progress = world.scheduler.live[event.request]
        assert 0 < event.num_tokens < len(progress.tokens)
        memory = world.runner.host_memory
        data = bytearray(len(event.blocks) * memory.block_bytes)
        memory.read(event.blocks, memoryview(data))
        request = self._moved(progress.request, progress.tokens, event.num_tokens)
        self._left[event.request] = None
        world.engine.abort(event.request)
        target = self._rng.choice([other for other in self.worlds if other is not world])
        self._place(self._firsts[event.request], target, request.id)
        target.engine.add((request,))
        if target.scheduler.incoming(request.id):
            due = step + self._rng.randint(0, 3)
            self._on_the_way.append(_OnTheWay(due, target, request.id, bytes(data)))

    def _moved(self, request: Request, tokens: list[int], num_moved: int) -> Request:
        params = request.params
        if any(isinstance(e, PromptScored) and e.request == self._firsts[request.id] for e in self.worlds[0].events):
            params = replace(params, prompt_logprobs=None)
        output = tuple(tokens[len(request.prompt) :])
        return replace(request, id=next(self._ids), params=params, output=output, num_moved=num_moved)

    def _arrive(self, arrival: _OnTheWay) -> None:
        self._on_the_way.remove(arrival)
        world, is_whole = arrival.world, self._rng.random() < 0.8
        memory, blocks = world.runner.host_memory, world.scheduler.incoming(arrival.request)
        num_come = len(blocks) if is_whole else self._rng.randint(0, len(blocks))
        memory.write(blocks[:num_come], memoryview(arrival.data)[: num_come * memory.block_bytes])
        self.num_moved += is_whole
        self.num_lost += not is_whole
        world.engine.arrive(arrival.request, is_whole)
        check(world.scheduler)
