"""A run without a model: the engine itself on a virtual clock; idle time is skipped."""

from collections.abc import Callable

from chairlift.core.engine import Engine
from chairlift.core.ports import Observer
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.sim.clock import VirtualClock
from chairlift.sim.cost import CostModel
from chairlift.sim.drafts import SimDrafts
from chairlift.sim.drive import drive
from chairlift.sim.frontends import Arriving, Frontends
from chairlift.sim.runner import SimRunner
from chairlift.sim.skip_ahead import SkipAhead, SkippedObserver


def simulate(
    arriving: Arriving,
    scheduler: Scheduler,
    cost: CostModel,
    observer: Observer,
    concurrency: int = 0,
    depth: int = 1,
    watch: Callable[[float], None] | None = None,
    drafts: SimDrafts | None = None,
    frontends: Frontends | None = None,
) -> None:
    """Runs until every request has ended. An observer with a method `skipped` is told of many steps at once where that
    is the same; any other of each step. `drafts`: the scheduler's drafter, if any. `frontends`: what is before the
    engine, in an open loop."""
    clock = VirtualClock()
    runner = SimRunner(cost, scheduler.limits.block_size, clock, depth, drafts)
    engine = Engine(scheduler, runner, clock, observer)
    ahead = SkipAhead(engine, clock, cost, observer) if isinstance(observer, SkippedObserver) else None
    drive(engine, clock, arriving, concurrency, watch, frontends, ahead)
