"""Random small worlds in which requests arrive while steps run: late planning changes no token."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from chairlift.core.engine import Engine
from chairlift.core.events import Event
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.request import Request
from chairlift.lab.sim.drive import drive
from chairlift.lab.sim.runner import VirtualClock
from fakes.clocks import CountingClock
from fakes.engines import BeginsFirst, Checked, PlansAtOnce
from fakes.ledger import LedgerRunner, expected
from fakes.worlds.draws import random_world
from fakes.worlds.world import World


class TimedLedger(LedgerRunner):
    """Two plans in flight, whose steps take a random time."""

    def __init__(self, world: World, clock: VirtualClock, seed: int) -> None:
        limits, host = world.limits, world.preemption.num_host_blocks
        super().__init__(limits.num_blocks, limits.block_size, limits.vocab_size, 2, host)
        self._clock, self._rng = clock, random.Random(seed)
        self._ready: list[float] = []

    def submit(self, plan: StepPlan) -> None:
        super().submit(plan)
        self._clock.advance_to(self._clock.now() + 0.001 * self._rng.random())
        began = max([self._clock.now(), *self._ready])
        self._ready.append(began + 0.01 + 0.0005 * plan.num_tokens + 0.001 * self._rng.random())

    def collect(self) -> StepResult:
        ready = self._ready.pop(0)
        was_ready = ready < self._clock.now()
        self._clock.advance_to(ready)
        return replace(super().collect(), was_ready=was_ready)


def arrivals(world: World, seed: int) -> Iterator[tuple[float, Request]]:
    rng, now = random.Random(seed), 0.0
    for groups in world.arrivals.values():
        for lead, *_ in groups:
            if not lead.params.beam_width:
                now += rng.expovariate(20.0)
                yield now, replace(lead, params=replace(lead.params, n=1))


def run(kind: type[Engine], seed: int) -> tuple[World, int]:
    """And how often it waited to plan."""
    world, clock, waits = random_world(seed), VirtualClock(), [0]

    class Watched(Checked, kind):  # type: ignore[misc,valid-type]
        def step(self) -> list[Event]:
            waits[0] += self.plan_at > 0.0
            world.events += (events := super().step())
            return list(events)

    runner = TimedLedger(world, clock, seed)
    drive(Watched(world.scheduler, runner, clock), clock, arrivals(world, seed))
    return world, waits[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("start", range(0, 200, 50))
def test_tokens_are_those_of_a_request_alone_whenever_steps_are_planned(start: int) -> None:
    num_waits = 0
    for seed in range(start, start + 50):
        late, waits = run(Engine, seed)
        at_once, none = run(PlansAtOnce, seed)
        num_waits += waits
        assert none == 0
        want = {lead.id: expected(lead, late.limits.vocab_size) for _, lead in arrivals(late, seed)}
        assert late.outputs() == at_once.outputs() == want, f"seed {seed}"
        assert late.scheduler.pool.num_free == late.limits.num_blocks, f"seed {seed}: blocks leaked"
    assert num_waits > 200


def test_requests_arrive_and_leave_while_the_first_step_runs() -> None:
    num_begun = 0
    for seed in range(300):
        world = random_world(seed)
        if world.depth == 2:
            engine = world.engine = BeginsFirst(world.scheduler, world.runner, CountingClock())
            world.run()
            num_begun += engine.num_begun
    assert num_begun > 100
